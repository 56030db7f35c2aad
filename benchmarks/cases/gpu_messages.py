"""Functions of an edge that a user wrote, on a GPU: compiled, and as plain torch on all edges at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.cases.gpu import assert_near
from benchmarks.gpu import bandwidth, cell, limit, measure
from benchmarks.measure import Study, with_gradients
from weft import kernels
from weft.graph.message.block import Block
from weft.kernels import reference

NUM_NODES, DEGREE, WIDTH, HEADS = 1_000_000, 20, 64, 4


@dataclass(frozen=True)
class Written:
    """A message, how it is reduced, its parameters, and what must be read for an edge, both ways."""

    message: Callable[..., Tensor | tuple[Tensor, Tensor]]
    reduce: str
    params: tuple[tuple[int, ...], ...]
    rows: int
    """rows of `WIDTH` values that are gathered for an edge in forward and backward together"""


def _gated(u: Tensor, v: Tensor, one: Tensor, two: Tensor) -> Tensor:
    both = torch.cat([u, v], -1)
    return torch.sigmoid(functional.linear(both, one)) * functional.linear(both, two).relu()


def _edge_convolution(u: Tensor, v: Tensor, one: Tensor, two: Tensor) -> Tensor:
    return functional.linear(functional.linear(torch.cat([v, u - v], -1), one).relu(), two)


def _attention(u: Tensor, v: Tensor, near: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
    u, v = u.unflatten(-1, (HEADS, -1)), v.unflatten(-1, (HEADS, -1))
    return functional.leaky_relu((u * far).sum(-1) + (v * near).sum(-1), 0.2), u


_PER_HEAD = (HEADS, WIDTH // HEADS)
WRITTEN = {
    "gated sum": Written(_gated, "sum", ((WIDTH, 2 * WIDTH),) * 2, 7),
    "edge convolution, max": Written(_edge_convolution, "max", ((WIDTH, 2 * WIDTH), (WIDTH, WIDTH)), 5),
    "edge convolution, mean": Written(_edge_convolution, "mean", ((WIDTH, 2 * WIDTH), (WIDTH, WIDTH)), 5),
    "attention": Written(_attention, "softmax", (_PER_HEAD, _PER_HEAD), 3),
}


def graph(num_nodes: int, degree: int, device: str) -> Block:
    """Return a random graph."""
    draw = torch.Generator(device).manual_seed(0)
    ends = torch.randint(num_nodes, (2, num_nodes * degree), generator=draw, device=device)
    indptr, indices, _ = kernels.build_csr(ends[0], ends[1], num_nodes)
    held = kernels.transpose_csr(indptr, indices, num_nodes)
    return Block(indptr, indices, num_src=num_nodes, transposed=lambda: held)


def plainly(block: Block, written: Written, x: Tensor, params: list[Tensor]) -> Tensor:
    """Return what the message gives in plain torch: a row an edge of everything."""
    rows = reference.edge_rows(block.indptr, block.num_edges)
    made = written.message(x[block.indices.long()], x[rows], *params)
    if isinstance(made, Tensor):
        return _reduced(made, rows, block.num_dst, written.reduce)
    score, value = made
    top = _reduced(score.detach(), rows, block.num_dst, "max")
    mass = (score - top[rows]).exp()
    weight = mass / _reduced(mass, rows, block.num_dst, "sum")[rows]
    return _reduced(weight[..., None] * value, rows, block.num_dst, "sum")


def _reduced(made: Tensor, rows: Tensor, num_rows: int, reduce: str) -> Tensor:
    index = rows.view(-1, *[1] * (made.dim() - 1)).expand_as(made)
    kind = {"max": "amax"}.get(reduce, reduce)
    return made.new_zeros(num_rows, *made.shape[1:]).scatter_reduce(0, index, made, kind, include_self=False)


def inputs(written: Written, num_nodes: int, device: str) -> tuple[Tensor, list[Tensor]]:
    """Return features and parameters."""
    torch.manual_seed(0)
    x = torch.randn(num_nodes, WIDTH, device=device).requires_grad_()
    return x, [(torch.randn(shape, device=device) / 8).requires_grad_() for shape in written.params]


def messages() -> Iterator[str]:
    """Yield a row a message, forward and backward with all gradients."""
    yield "| message | weft | plain torch | must move | at copy speed | ratio to it |"
    yield "|---|---|---|---|---|---|"
    block = graph(NUM_NODES, DEGREE, "cuda")
    for name, written in WRITTEN.items():
        x, params = inputs(written, NUM_NODES, "cuda")
        ours = lambda w=written, x=x, p=params: block.propagate(w.message, [x], [x], [], w.reduce, p)  # noqa: E731
        rival = lambda w=written, x=x, p=params: plainly(block, w, x, p)  # noqa: E731
        grad = torch.randn_like(ours())
        step, other = (with_gradients(each, [x, *params], grad) for each in (ours, rival))
        found, plain = measure(step), measure(other, repeat=3)
        if plain is not None:
            assert_near(ours(), rival())
        moved = block.num_edges * (written.rows * WIDTH * 4 + 12)
        yield f"| {name} | {cell(found)} | {cell(plain)} | {limit(moved, found)} |"


def _cases() -> list[Study]:
    size = f"{NUM_NODES:,} nodes, {NUM_NODES * DEGREE:,} edges, width {WIDTH}, {torch.cuda.get_device_name()}"
    note = (
        "A random graph; memory is what is allocated above the inputs. 'Must move' counts the rows gathered "
        f"an edge by forward and both gradient passes. A copy moves {bandwidth() / 1e12:.2f} TB/s here."
    )
    return [Study("gpu_messages", f"Messages a user wrote, forward + backward, {size}", messages, note)]


CASES = _cases() if torch.cuda.is_available() else []
