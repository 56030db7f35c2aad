"""`propagate` by the compiler, against the same messages as they are: results and all gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.graph import Block, Graph
from weft.graph.message import compiled as module
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import Propagation

NODES = 12


def graph() -> Graph:
    draw = torch.Generator().manual_seed(0)
    return Graph.from_edges(torch.randint(0, NODES - 1, (2, 90), generator=draw), num_nodes=NODES)


@pytest.fixture(params=["program", "fewer operators"], autouse=True)
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compile on the smallest graph; run programs (by the reference, if need be), or smaller messages."""
    monkeypatch.setattr(module, "LEAST_NUMBERS", 0)
    used: list[str] = []
    as_program = request.param == "program"
    monkeypatch.setattr(module, "obstacle", lambda *given: "" if as_program else "not now")
    if not as_program:
        monkeypatch.setattr(module, "match", lambda program: None)
    for name in ("reduce_edges", "_smaller", "execute"):
        monkeypatch.setattr(module, name, _noted(getattr(module, name), name, used))
    return used


def _noted(function: Callable[..., Any], name: str, used: list[str]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        used.append(name)
        return function(*args)

    return run


class Messages(nn.Module):
    """Five messages of a user, with parameters that they capture."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(8, 6), nn.Linear(8, 6)
        self.network = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 6))
        self.attention = nn.Parameter(torch.randn(2, 2))

    def gated(self, u: Tensor, v: Tensor) -> Tensor:
        both = torch.cat([u, v], 1)
        return self.gate(both).sigmoid() * self.value(both).relu()  # type: ignore[no-any-return]

    def attended(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u, v = u.view(-1, 2, 2), v.view(-1, 2, 2)
        return F.leaky_relu((u * self.attention).sum(-1) + (v * self.attention).sum(-1), 0.2), u

    def bent_above_zero(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        score = (u * self.attention.view(-1)).sum(-1) + (v * self.attention.view(-1)).sum(-1)
        return torch.where(score > 0.7, score, 0.2 * score), u

    def dotted(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u, v = u.view(-1, 2, 2), v.view(-1, 2, 2)
        return (u * v).sum(-1) / 1.7, u

    def edge_conv(self, u: Tensor, v: Tensor) -> Tensor:
        return self.network(torch.cat([v, u - v], 1))  # type: ignore[no-any-return]

    def distance(self, u: Tensor, v: Tensor, e: Tensor) -> Tensor:
        return torch.exp(-(u - v).norm(dim=1, keepdim=True)) * e.unsqueeze(1) * u


ASKED = {
    "gated": ("gated", "sum", False),
    "own attention": ("attended", "softmax", False),
    "bent above zero": ("bent_above_zero", "softmax", False),
    "dotted": ("dotted", "softmax", False),
    "edge_conv mean": ("edge_conv", "mean", False),
    "edge_conv max": ("edge_conv", "max", False),
    "distance": ("distance", "sum", True),
    "distance min": ("distance", "min", True),
}


def run(block: Block, messages: Messages, name: str, h: Tensor, e: Tensor) -> Tensor:
    method, reduce, of_edges = ASKED[name]
    message = getattr(messages, method)
    return block.propagate(
        message, src=(h,), dst=(block.dst(h),), edge=(e,) if of_edges else (), reduce=reduce
    )


@pytest.mark.parametrize("name", ASKED)
def test_compiled_equals_the_message_as_it_is(name: str, ways: list[str]) -> None:
    torch.manual_seed(1)
    block = graph().block()
    messages = Messages().double()
    h = torch.randn(NODES, 4, dtype=torch.float64, requires_grad=True)
    e = torch.randn(block.num_edges, dtype=torch.float64, requires_grad=True)
    leaves = [h, e, *messages.parameters()]
    found = []
    for on in (False, True):
        before = weft.compile_messages(on)
        out = run(block, messages, name, h, e)
        weft.compile_messages(before)
        grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        found.append([out, *torch.autograd.grad(out, leaves, grad, allow_unused=True)])
        assert ("execute" in ways) == on
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("name", ASKED)
def test_results_keep_their_type_under_autocast(name: str) -> None:
    torch.manual_seed(0)
    block, messages = graph().block(), Messages()
    h, e = torch.randn(NODES, 4, requires_grad=True), torch.randn(90)
    found = []
    for on in (False, True):
        before = weft.compile_messages(on)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(run(block, messages, name, h, e))
        weft.compile_messages(before)
    plain, ours = found
    assert ours.dtype == plain.dtype
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.05)


def test_a_step_of_training_is_seen_by_the_next_call() -> None:
    block, messages = graph().block(), Messages()
    h, e = torch.randn(NODES, 4), torch.randn(90)
    first = run(block, messages, "gated", h, e)
    with torch.no_grad():
        messages.gate.weight.mul_(2.0)
        messages.value.weight.copy_(torch.ones_like(messages.value.weight))
    second = run(block, messages, "gated", h, e)
    weft.compile_messages(False)
    expected = run(block, messages, "gated", h, e)
    weft.compile_messages(True)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, expected)


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "softmax"])
def test_parts_keep_what_stands_beside_them(reduce: str) -> None:
    block = graph().block()
    h = torch.randn(NODES, 4, dtype=torch.float64)

    def message(u: Tensor, v: Tensor) -> Any:
        made = torch.tanh(u - v)
        return (made[:, :2], made.view(-1, 2, 2)) if reduce == "softmax" else made

    found = []
    for on in (False, True):
        before = weft.compile_messages(on)
        found.append(contribute(block, Propagation(message, [h], [h], [], reduce)))
        weft.compile_messages(before)
    for ours, plain in zip(*found, strict=True):
        assert (ours is None) == (plain is None)
        if ours is not None and plain is not None:
            torch.testing.assert_close(ours, plain)


def test_a_weighed_message_is_compiled(ways: list[str]) -> None:
    block = graph().block()
    h = torch.randn(NODES, 4, dtype=torch.float64)
    how = Propagation(lambda u, v: torch.tanh(u - v), [h], [h]).weighed(torch.arange(90.0))
    out, _ = contribute(block, how)
    src, dst = block.edge_index()
    made = torch.tanh(h[src] - h[dst]) * torch.arange(90.0).double().unsqueeze(1)
    torch.testing.assert_close(out, torch.zeros_like(h).index_add(0, dst, made))
    assert "execute" in ways


def test_few_edges_are_left_to_torch(ways: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_NUMBERS", 1 << 15)
    h = torch.randn(NODES, 4)
    graph().block().propagate(lambda u: u * 2, src=(h,))
    assert ways == []


def test_one_watch_inside_another_leaves_the_outer_one_on() -> None:
    block, h = graph().block(), torch.randn(NODES, 4)
    with module.watched() as outer:
        with module.watched() as inner:
            block.propagate(lambda u: u * 2, src=(h,))
        block.propagate(lambda u: u * 3, src=(h,))
    block.propagate(lambda u: u * 4, src=(h,))
    assert (len(outer), len(inner)) == (1, 1)


def test_a_whole_number_and_one_with_a_point_are_two() -> None:
    block, h = graph().block(), torch.randn(NODES, 4, dtype=torch.float64)
    bytes_of_edges = torch.full((block.num_edges, 1), 200, dtype=torch.uint8)

    def both(u: Tensor, e: Tensor) -> Tensor:
        return u * (e * 2) + u * (e * 2.0)  # 400 does not fit a byte

    (src, dst), found = block.edge_index(), block.propagate(both, src=(h,), edge=(bytes_of_edges,))
    want = torch.zeros_like(h).index_add(0, dst, h[src] * (144 + 400.0))
    torch.testing.assert_close(found, want)
    for factor, times in ((2, 144.0), (2.0, 400.0)):
        found = block.propagate(lambda u, e, by=factor: u * (e * by), src=(h,), edge=(bytes_of_edges,))
        torch.testing.assert_close(found, torch.zeros_like(h).index_add(0, dst, h[src] * times))


def test_a_row_that_one_end_alone_reads_is_that_row_for_both() -> None:
    # No edge leaves the last node, whose length has no slope; edges enter it.
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES - 1, (2, 90), generator=draw)
    edges[1, :9] = NODES - 1
    block = Graph.from_edges(edges, num_nodes=NODES).block()
    h = torch.randn(NODES, 4, dtype=torch.float64, generator=draw)
    h[NODES - 1] = 0.0
    h, scale = h.requires_grad_(), torch.ones(4, dtype=torch.float64, requires_grad=True)

    def message(u: Tensor, v: Tensor, scale: Tensor) -> Tensor:
        return (u * scale).square().sum(-1, keepdim=True).sqrt() * (u - (v + 1) * scale)

    found = []
    for on in (False, True):
        before = weft.compile_messages(on)
        out = block.propagate(message, src=(h,), dst=(block.dst(h),), params=(scale,))
        weft.compile_messages(before)
        found.append([out, *torch.autograd.grad(out.sum(), (h, scale))])
    for ours, plain in zip(*found, strict=True):
        assert plain.isfinite().all()
        torch.testing.assert_close(ours, plain)


def test_a_zero_below_zero_is_another_number() -> None:
    block, h = graph().block(), torch.ones(NODES, 4, dtype=torch.float64)

    def steep(u: Tensor, v: Tensor) -> Tensor:
        return torch.where(u + v > 3, 1 / ((u + v) * 0.0), 1 / ((u + v) * -0.0))

    found = block.propagate(steep, src=(h,), dst=(h,), reduce="max")
    assert (found[block.in_degree() > 0] == -torch.inf).all()
