"""Matrices by relation through `block.propagate`: over (relation, source) pairs, with the same numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.graph import Block
from weft.graph.message import compiled as module

RELATIONS, IN, OUT = 5, 6, 4
REDUCTIONS = ("sum", "mean", "max", "softmax")


def block(nodes: int = 12, edges: int = 150) -> Block:
    draw = torch.Generator().manual_seed(0)
    ends = torch.randint(0, nodes - 1, (2, edges), generator=draw)  # the last node has no edge
    return weft.Graph.from_edges(ends, num_nodes=nodes).block()


class Typed(nn.Module):
    """Messages with the matrix of their edge's relation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(RELATIONS, IN, OUT))

    def mapped(self, h: Tensor, kind: Tensor) -> Tensor:
        return torch.bmm(h.unsqueeze(1), self.weight[kind]).squeeze(1)

    def attended(self, h: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
        mapped = self.mapped(h, kind)
        return mapped.tanh().sum(-1), mapped

    def of_squares(self, h: Tensor, kind: Tensor) -> Tensor:
        return self.mapped(h.tanh(), kind) ** 2


@pytest.fixture(params=["program", "fewer operators"], autouse=True)
def over(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compile on the smallest graph; note the sources of the blocks that messages are reduced over."""
    monkeypatch.setattr(module, "LEAST_NUMBERS", 0)
    if request.param != "program":
        monkeypatch.setattr(module, "obstacle", lambda *given: "not now")
        monkeypatch.setattr(module, "match", lambda program: None)
    seen: list[int] = []
    reduced: Callable[..., Any] = module._reduced

    def noted(block: Block, *given: Any) -> Any:
        seen.append(block.num_src)
        return reduced(block, *given)

    monkeypatch.setattr(module, "_reduced", noted)
    return seen


def some(block: Block, low: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    kind = torch.randint(low, RELATIONS, (block.num_edges,))
    h = torch.randn(block.num_src, IN, dtype=torch.float64, requires_grad=True)
    return h, torch.where(kind == 2, 1, kind)  # the third has no edges


def run(layer: Typed, on: Block, h: Tensor, kind: Tensor, reduce: str = "sum") -> Tensor:
    message = layer.attended if reduce == "softmax" else layer.mapped
    return on.propagate(message, src=(h,), edge=(kind,), reduce=reduce)


def as_written(call: Callable[[], Any]) -> Any:
    before = weft.compile_messages(False)
    try:
        return call()
    finally:
        weft.compile_messages(before)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_messages_and_gradients_are_those_of_the_message_as_written(reduce: str, over: list[int]) -> None:
    on, layer = block(), Typed().double()
    h, kind = some(on, low=-2)
    leaves = [h, layer.weight]

    def results() -> list[Tensor]:
        out = run(layer, on, h, kind, reduce)
        grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        return [out, *torch.autograd.grad(out, leaves, grad)]

    for ours, plain in zip(results(), as_written(results), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)
    assert over == [len({*zip(kind.tolist(), on.indices.tolist())})], "a source a pair"


def test_second_derivatives_are_those_of_the_message_as_written() -> None:
    on, layer = block(), Typed().double()
    h, kind = some(on)

    def results() -> list[Tensor]:
        out = on.propagate(layer.of_squares, src=(h,), edge=(kind,))
        (force,) = torch.autograd.grad(out.square().sum(), h, create_graph=True)
        return [force, *torch.autograd.grad(force.square().sum(), [h, layer.weight])]

    for ours, plain in zip(results(), as_written(results), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-8)


def test_pairs_are_kept_until_the_relations_change(monkeypatch: pytest.MonkeyPatch) -> None:
    on, layer = block(), Typed().double()
    h, kind = some(on)
    made: list[int] = []
    unique = torch.unique
    monkeypatch.setattr(torch, "unique", lambda *a, **k: (made.append(1), unique(*a, **k))[1])
    for _ in range(2):
        run(layer, on, h, kind)
    assert len(made) == 1
    kind.fill_(3)
    out = run(layer, on, h, kind)
    assert len(made) == 2
    torch.testing.assert_close(out, as_written(lambda: run(layer, on, h, kind)))


@pytest.mark.parametrize("wrong", [RELATIONS, -RELATIONS - 1])
def test_a_relation_that_is_not_there_is_the_error_of_torch(wrong: int) -> None:
    on, layer = block(), Typed().double()
    h, kind = some(on)
    kind[7] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for dimension 0 with size 5"):
        run(layer, on, h, kind)


def test_bits_are_the_same_for_any_number_of_threads() -> None:
    on, layer = block(nodes=300, edges=20_000), Typed()
    torch.manual_seed(1)
    h, kind = torch.randn(300, IN, requires_grad=True), torch.arange(20_000) % RELATIONS
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = run(layer, on, h, kind)
            found.append([out, *torch.autograd.grad(out.square().sum(), [h, layer.weight])])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], others, strict=True))


def test_it_is_explained_with_the_pairs_it_runs_on() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=300)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(RELATIONS, graph.x.shape[1], OUT))

        def message(self, h: Tensor, kind: Tensor) -> Tensor:
            return torch.einsum("ef,efo->eo", h, self.weight[kind])

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            kind = torch.arange(blocks[0].num_edges) % RELATIONS
            return blocks[0].propagate(self.message, src=(x,), edge=(kind,))  # type: ignore[no-any-return]

    on = graph.block()
    pairs = len({*zip((torch.arange(on.num_edges) % RELATIONS).tolist(), on.indices.tolist())})
    (message,) = weft.explain(Net(), graph).messages
    assert message.compiled is not None
    (product,) = [each for each in message.compiled.operators if each.movement == "dense"]
    assert (product.where, product.rows, product.shape) == ("relation", pairs, (OUT,))
    assert product.cost.operations == 2 * pairs * graph.x.shape[1] * OUT
    assert "on (relation, source)" in str(weft.explain(Net(), graph))


def test_relations_that_are_written_without_a_new_version_are_seen() -> None:
    graph, typed = block(), Typed().double()
    h = torch.randn(12, IN, dtype=torch.float64)
    kind = torch.randint(0, RELATIONS, (150,), generator=torch.Generator().manual_seed(1))
    for write in (lambda: None, lambda: kind.data.fill_(2), lambda: kind.numpy().fill(3)):
        write()
        found = graph.propagate(typed.mapped, src=(h,), edge=(kind,))
        torch.testing.assert_close(found, graph.propagate(typed.mapped, src=(h,), edge=(kind.clone(),)))
        torch.testing.assert_close(found, whole(graph, typed, h, kind))


def whole(graph: Block, typed: Typed, h: Tensor, kind: Tensor) -> Tensor:
    made = typed.mapped(h[graph.indices.long()], kind)
    return torch.zeros(12, OUT, dtype=h.dtype).index_add(0, graph.edge_dst.long(), made)
