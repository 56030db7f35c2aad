"""Functions of an edge on a GPU: compiled by weft, against the same in PyG as it is and under torch.compile.

Forward and backward with all gradients of one layer on a random graph. Each contender has its own time limit.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv

import weft
from benchmarks.cases.messages import HEADS, WIDTH, Attention, EdgeConv, Gated, MoNet
from benchmarks.cases.own_accelerated import inherited
from benchmarks.counting import Needed, of_messages
from benchmarks.gpu import Measured, arithmetic, assert_near, bandwidth, cell, measure, within
from benchmarks.graphs import tiny
from benchmarks.measure import Study, with_gradients
from weft import kernels
from weft.graph.message.block import Block
from weft.layers import layers

LIMIT = 30.0
"""Seconds that a contender may take, compilation included."""


class Inputs:
    """A graph and what layers are given on it; both CSR directions are inputs."""

    def __init__(self) -> None:
        self.nodes, self.edges = (300, 4_000) if tiny() else (1_000_000, 20_000_000)
        draw = torch.Generator("cuda").manual_seed(0)
        src, dst = torch.randint(self.nodes, (2, self.edges), generator=draw, device="cuda")
        indptr, indices, order = kernels.build_csr(src, dst, self.nodes)
        held = kernels.transpose_csr(indptr, indices, self.nodes)
        self.block = Block(indptr, indices, num_src=self.nodes, transposed=lambda: held)
        self.edge_index = torch.stack([src, dst])[:, order]
        self.x = torch.randn(self.nodes, WIDTH, generator=draw, device="cuda").requires_grad_()
        self.attr = torch.rand(self.edges, 2, generator=draw, device="cuda")


@functools.cache
def inputs() -> Inputs:
    """Return what all cases share."""
    return Inputs()


Call = Callable[[Tensor], Tensor]


def propagated(conv: Any) -> Call:
    """Return a convolution's message by `Block.propagate`."""
    given = inputs()
    reduce = "softmax" if conv.attends else {"add": "sum"}.get(conv.aggr, conv.aggr)

    def call(x: Tensor) -> Tensor:
        ends: dict[str, Any] = {"edge": (given.attr,)} if conv.takes_edges else {"dst": (x,)}
        out: Tensor = given.block.propagate(conv.of_edge, src=(x,), reduce=reduce, **ends)
        return out

    return call


def by_pyg(conv: Any) -> Call:
    """Return a convolution's own forward."""
    given = inputs()
    rest = (given.attr,) if hasattr(conv, "takes_edges") else ()
    return lambda x: conv(x, given.edge_index, *rest)


def rows(contenders: dict[str, tuple[nn.Module, Call]], needed: Needed | None) -> Iterator[str]:
    """Yield a table of contenders, the first one being weft; `needed` is of the first."""
    yield "| | time, memory | times weft's | must move, at copy speed | operations, at their rate | over it |"
    yield "|---|---|---|---|---|---|"
    x, first, expected = inputs().x, None, None
    for name, (module, call) in contenders.items():
        leaves = [x, *(each for each in module.parameters() if each.requires_grad)]
        made: list[Tensor] = []

        def timed(call: Call = call, leaves: list[Tensor] = leaves, made: list[Tensor] = made) -> Any:
            made.append(call(x).detach())
            return measure(with_gradients(lambda: call(x), leaves, torch.ones_like(made[0])), repeat=5)

        found = within(LIMIT, timed)
        if isinstance(found, Measured) and not name.startswith("layer"):  # which has its own parameters
            expected = made[0] if expected is None else expected
            assert_near(made[0].flatten(1), expected.flatten(1), 1e-3)
        yield f"| {name} | {cell(found)} | {_ratio(found, first)} | {_limit(needed, found)} |"
        first, needed = first if first is not None else found, None
        made.clear()


def _ratio(found: Any, first: Any) -> str:
    known = isinstance(found, Measured) and isinstance(first, Measured)
    return f"{found.time / first.time:.1f}" if known else "–"


def _limit(needed: Needed | None, found: Any) -> str:
    if needed is None:
        return "– | – | –"
    moving, counting = needed.bytes / bandwidth() * 1e3, arithmetic(needed.products, needed.steps) * 1e3
    over = f"{found.time / max(moving, counting):.2f}" if isinstance(found, Measured) else "–"
    operations = (needed.products + needed.steps) / 1e9
    return f"{needed.bytes / 1e9:.1f} GB, {moving:.1f} ms | {operations:,.0f} G, {counting:.1f} ms | {over}"


def message(make: Callable[[], Any], *, layer: str = "") -> Iterator[str]:
    """Yield the rows of a message that a user wrote."""
    torch.manual_seed(0)
    conv = make().to("cuda")
    contenders = {"weft": (conv, propagated(conv))}
    if layer:
        own = layers[layer](WIDTH, WIDTH // HEADS, heads=HEADS).to("cuda")
        contenders[f"layer {layer}"] = (own, lambda x: own(inputs().block, x))
    needed = of_messages(lambda: propagated(conv)(inputs().x), inputs().block)
    yield from rows(contenders | rivals(conv), needed)


def rivals(conv: Any) -> dict[str, tuple[nn.Module, Call]]:
    """Return PyG's forward of a convolution accelerated, as it is and compiled."""
    ways: dict[str, Callable[[Any], Any]] = {
        "weft.accelerate": weft.accelerate,
        "PyG": lambda each: each,
        "PyG, torch.compile": torch.compile,
    }
    taken = {name: copy.deepcopy(conv) for name in ways}
    return {name: (each, by_pyg(ways[name](each))) for name, each in taken.items()}


def transformer() -> Iterator[str]:
    """Yield the rows of PyG's TransformerConv."""
    torch.manual_seed(0)
    conv = TransformerConv(WIDTH, WIDTH // HEADS, heads=HEADS).to("cuda")
    # A class that only inherits is compiled: its program says what any way to the same numbers needs.
    twin = copy.deepcopy(conv)
    twin.__class__ = inherited(TransformerConv)
    fast = by_pyg(weft.accelerate(twin, check=False))
    yield from rows(rivals(conv), of_messages(lambda: fast(inputs().x), inputs().block))


def _studies() -> list[Study]:
    size = f"{WIDTH} columns, forward + backward, {torch.cuda.get_device_name()}"
    note = (
        "1,000,000 nodes, 20,000,000 edges at random; memory is what is allocated above the inputs, both CSR "
        "directions among them. What must move is a row per edge for every tensor that a pass over the edges "
        f"gathers, and the rows it reads and writes; a copy moves {bandwidth() / 1e12:.2f} TB/s here."
    )
    made: dict[str, Callable[[], Iterator[str]]] = {
        "edgeconv_max": lambda: message(lambda: EdgeConv("max")),
        "edgeconv_mean": lambda: message(lambda: EdgeConv("mean")),
        "gated": lambda: message(Gated),
        "attention": lambda: message(Attention, layer="gat"),
        "monet": lambda: message(MoNet),
        "transformer": transformer,
    }
    return [Study(f"messages_{name}_gpu", f"{name}, {size}", each, note) for name, each in made.items()]


CASES = _studies() if torch.cuda.is_available() else []
