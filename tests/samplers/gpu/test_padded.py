"""Padded batches give the losses and gradients of those that were drawn, on a GPU also when replayed."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.compiler.programs import run as backends
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.kernels import gpu
from weft.layers.base import Layer, Linear, edge_attr, layers
from weft.samplers import NeighborSampler
from weft.samplers.base import Batch
from weft.samplers.gpu.padded import padded
from weft.samplers.gpu.transfer import Courier
from weft.strategies.minibatch import replay
from weft.strategies.minibatch.replay import Replay

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("WEFT_TEST_DEVICE", "cpu")
on_triton = pytest.mark.skipif(
    not (gpu.INTERPRETED or DEVICE == "cuda"), reason="needs a GPU or Triton's interpreter"
)
FANOUT = [3, 2]
GATED: dict[str, Any] = {"edge_features": 2, "dropout": 0.0, "activation": "tanh"}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("sage", {"dropout": 0.4}),
    ("sage", {"aggregate": "max", "norm": "layer", "residual": True}),
    ("gcn", {"jumping": "cat"}),
    ("gat", {"heads": 2, "attention_dropout": 0.3}),
    ("gat", {"heads": 2, "edge_features": 2}),
    ("gatv2", {"heads": 2, "edge_features": 2}),
    ("gine", {"edge_features": 2}),
    ("edgeconv", {}),
    ("edgeconv", {"aggregate": "mean", "dropout": 0.4}),
    ("gated", GATED),
    ("gated", {**GATED, "reduce": "softmax"}),
    ("gated", {**GATED, "reduce": "min"}),
]


class Gated(Layer):
    """A message of a user's own: of both ends and of an edge, with a map of edges that is made outside of it.

    The length of a row has no slope where the row is 0.
    """

    takes_edge_features = True

    def __init__(
        self, in_features: int, out_features: int, *, edge_features: int, reduce: str = "mean"
    ) -> None:
        super().__init__(in_features, out_features)
        self.reduce = reduce
        self.scale = nn.Parameter(torch.ones(in_features))
        self.of_edges = Linear(edge_features, out_features)
        self.ends = nn.ModuleList(Linear(in_features, out_features) for _ in range(2))

    def message(self, u: Tensor, v: Tensor, edge: Tensor) -> Any:
        size = (u * self.scale).square().sum(-1, keepdim=True).sqrt()
        made = (self.ends[0](u) + self.ends[1](v)).sigmoid() * edge.relu() / (0.1 + size)
        return (made.sum(-1), made) if self.reduce == "softmax" else made

    def forward(self, block: Block, h: Tensor) -> Tensor:
        term = self.of_edges(edge_attr(self, block))
        reduced = block.propagate(self.message, [h], [block.dst(h)], [term], reduce=self.reduce)
        return reduced + self.ends[1](block.dst(h))  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def own_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a layer of a user's own, and programs run as Triton kernels by the interpreter, too.

    Sources of more than 8 edges are hubs, and rows are put in order of length.
    """
    monkeypatch.setitem(layers._entries, "gated", Gated)
    if gpu.INTERPRETED or DEVICE == "cuda":
        from weft.kernels.triton import plan

        monkeypatch.setitem(backends._BACKENDS, DEVICE, "weft.compiler.triton.backend")
        monkeypatch.setattr(plan, "SEGMENT", 8)
        monkeypatch.setattr("weft.compiler.triton.backend.SORTED", 1)


def community(device: str, **edge_data: Tensor) -> Graph:
    torch.manual_seed(0)
    num_nodes, num_edges = 60, 500
    dst = torch.randint(50, (num_edges,))  # ten nodes have no edge
    src = torch.cat([torch.zeros(200, dtype=torch.int64), torch.randint(num_nodes, (num_edges - 200,))])
    graph = Graph.from_edges(
        torch.stack([src, dst]),
        x=torch.randn(num_nodes, 5),
        y=torch.arange(num_nodes) % 3,
        edge_attr=torch.randn(num_edges, 2),
        **edge_data,
    )
    return graph.to(device=device)


def mean_loss(model: nn.Module, batch: Batch) -> Tensor:
    out = model(batch.blocks, batch.x)[: batch.seeds.numel()]
    assert batch.y is not None
    return F.cross_entropy(out, batch.y)


def plain(model: nn.Module, batch: Batch, clock: Tensor) -> tuple[Tensor, list[Tensor]]:
    batch.set_clock(clock)
    loss = mean_loss(model, batch)
    return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters())))


def steps(
    model: nn.Module,
    run: Replay,
    sampler: NeighborSampler,
    count: int,
    brought: Callable[[Batch], Batch] = lambda batch: batch,
) -> None:
    """Take some steps, each compared with that of the batch as it was drawn."""
    clock = torch.tensor([7, 1, 0])
    for step in range(count):
        clock[2] = step
        batch, again = (brought(sampler.sample(torch.arange(step, 60, 9), 1, step)) for _ in range(2))
        expected = plain(model, batch, clock)
        loss = run(model, again, clock)
        assert loss is not None
        torch.testing.assert_close(loss, expected[0])
        for param, gradient in zip(model.parameters(), expected[1], strict=True):
            assert param.grad is not None
            torch.testing.assert_close(param.grad, gradient, rtol=1e-4, atol=1e-6)


@on_triton
@pytest.mark.parametrize(("layer", "options"), MODELS, ids=str)
@pytest.mark.usefixtures("nan_memory")
def test_losses_and_gradients_are_those_of_the_batch(
    layer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST", 0)  # nothing is captured
    sampler = NeighborSampler(community(DEVICE), FANOUT, seed=3)
    model = weft.nn.Stack(5, 3, layer=layer, layers=2, hidden=6, **options).to(DEVICE)
    steps(model, Replay(mean_loss, FANOUT), sampler, 2)


@on_triton
@pytest.mark.parametrize(("layer", "options"), [("edgeconv", {}), ("gated", GATED)], ids=str)
def test_a_step_leaves_nothing_of_autograd_behind(
    layer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST", 0)
    sampler = NeighborSampler(community(DEVICE), FANOUT, seed=3)
    model = weft.nn.Stack(5, 3, layer=layer, layers=2, hidden=6, **options).to(DEVICE)

    def ends() -> list[Any]:  # where gradients arrive, on the stream of the step that asked first
        return [param.view_as(param).grad_fn.next_functions[0][0] for param in model.parameters()]  # type: ignore[union-attr]

    held = ends()
    for each in held:
        each.metadata["step"] = "first"
    assert Replay(mean_loss, FANOUT)(model, sampler.sample([1, 2, 3]), torch.tensor([0, 0, 0])) is not None
    del held, each
    # A capture, which is on a stream of its own, could not wait for that one.
    assert [each for each in ends() if "step" in each.metadata] == []


@on_triton
def test_rows_that_no_edge_reads_leave_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST", 0)  # nothing is captured
    torch.manual_seed(0)
    ends = torch.randint(1, 60, (2, 400))  # node 0, which fills the rows that are too many, has no edge
    graph = Graph.from_edges(
        ends, x=torch.randn(60, 5), y=torch.arange(60) % 3, edge_attr=torch.randn(400, 2)
    ).to(device=DEVICE)
    assert isinstance(graph.x, Tensor)
    graph.x[0] = 0.0  # where the length of a row has no slope
    model = weft.nn.Stack(5, 3, layer="gated", layers=2, hidden=6, **GATED).to(DEVICE)
    clock = torch.tensor([7, 1, 0])
    batch, again = (
        NeighborSampler(graph, FANOUT, seed=3).sample(torch.arange(1, 60, 9), 1, 0) for _ in range(2)
    )
    _, expected = plain(model, batch, clock)
    assert Replay(mean_loss, FANOUT)(model, again, clock) is not None
    for param, gradient in zip(model.parameters(), expected, strict=True):
        assert gradient.isfinite().all()
        torch.testing.assert_close(param.grad, gradient, rtol=1e-4, atol=1e-6)


@on_triton
@pytest.mark.parametrize(
    ("layer", "options"),
    [("gcn", {}), ("gat", {"heads": 2, "edge_features": 2}), ("gated", GATED)],
    ids=str,
)
def test_edge_data_may_come_with_the_batch(
    layer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST", 0)  # nothing is captured
    graph = community("cpu", edge_weight=torch.rand(500) + 0.1)
    courier = Courier(DEVICE, graph)

    def brought(batch: Batch) -> Batch:
        made = courier.carry(batch)
        for block in made.blocks:  # those of all edges lie where nobody reads them
            block.edge_data = {name: value.to("meta") for name, value in block.edge_data.items()}
        return made

    model = weft.nn.Stack(5, 3, layer=layer, layers=2, hidden=6, **options).to(DEVICE)
    steps(model, Replay(mean_loss, FANOUT), NeighborSampler(graph, FANOUT, seed=3), 2, brought)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
@pytest.mark.parametrize(("layer", "options"), MODELS, ids=str)
def test_replays_are_the_steps_bit_for_bit(
    layer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = NeighborSampler(community("cuda"), FANOUT, seed=3)
    model = weft.nn.Stack(5, 3, layer=layer, layers=2, hidden=6, **options).cuda()
    run = Replay(mean_loss, FANOUT)
    steps(model, run, sampler, 9)
    assert any(size.graph is not None for size in run._sizes.values())
    found = _all_gradients(model, run, sampler)
    monkeypatch.setattr(replay, "MOST", 0)
    for a, b in zip(found, _all_gradients(model, Replay(mean_loss, FANOUT), sampler), strict=True):
        assert torch.equal(a, b)


def _all_gradients(model: nn.Module, run: Replay, sampler: NeighborSampler) -> list[Tensor]:
    found = []
    for step in range(6):
        loss = run(model, sampler.sample(torch.arange(step, 60, 9), 1, step), torch.tensor([7, 1, step]))
        assert loss is not None
        found += [
            loss.clone(),
            *(param.grad.clone() for param in model.parameters() if param.grad is not None),
        ]
    return found


class Drawing(Gated):
    def message(self, u: Tensor, v: Tensor, edge: Tensor) -> Tensor:
        return F.dropout(super().message(u, v, edge))


class ByRelation(Gated):
    def forward(self, block: Block, h: Tensor) -> Tensor:
        return super().forward(block.relation(0), h)


class Sorting(Gated):
    def message(self, u: Tensor, v: Tensor, edge: Tensor) -> Tensor:
        return super().message((u - v).sort(-1).values, v, edge)


REFUSED = [(Drawing, "compiled: it draws"), (ByRelation, "relation"), (Sorting, "sort")]


@on_triton
@pytest.mark.parametrize(("layer", "reason"), REFUSED)
def test_what_padding_would_change_is_not_padded(
    layer: type[Layer], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(layers._entries, "gated", layer)
    graph = community(DEVICE)
    model = weft.nn.Stack(5, 3, layer="gated", layers=2, hidden=6, **GATED).to(DEVICE)
    run = Replay(mean_loss, FANOUT)
    batch = NeighborSampler(graph, FANOUT).sample([1, 2, 3])
    assert run(model, batch, torch.tensor([0, 0, 0])) is None
    assert not run.able
    assert reason in run.reason
    assert run.fetch(batch).x is not None


@on_triton
def test_messages_are_not_padded_without_the_compiler() -> None:
    model = weft.nn.Stack(5, 3, layer="edgeconv", layers=2, hidden=6).to(DEVICE)
    run, batch = Replay(mean_loss, FANOUT), NeighborSampler(community(DEVICE), FANOUT).sample([1, 2, 3])
    before = weft.compile_messages(False)
    assert run(model, batch, torch.tensor([0, 0, 0])) is None
    weft.compile_messages(before)
    assert "compile_messages" in run.reason


@on_triton
def test_models_whose_steps_are_padded() -> None:
    assert not Replay.suits(weft.nn.Stack(5, 3, layers=2, norm="batch"), FANOUT)
    assert not Replay.suits(nn.Linear(3, 3), FANOUT)
    assert not Replay.suits(weft.nn.Stack(5, 3, layers=2), [3, -1])
    assert Replay.suits(weft.nn.Stack(5, 3, layers=2), FANOUT)


def test_sizes_are_few_and_at_most_a_sixteenth_too_large() -> None:
    sizes = [padded(count) for count in range(1, 20_000)]
    assert all(count <= size <= max(count + 31, count * 17 / 16) for count, size in enumerate(sizes, start=1))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) < 140


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_weights_that_lie_elsewhere_are_captured_anew() -> None:
    sampler = NeighborSampler(community("cuda"), FANOUT, seed=3)
    model = weft.nn.Stack(5, 3, layers=2, hidden=6).cuda()
    run = Replay(mean_loss, FANOUT)
    for _ in range(3):
        steps(model, run, sampler, 9)
        assert any(size.graph is not None for size in run._sizes.values())
        held = [param.grad for param in model.parameters()]  # in memory of what was captured
        for param in model.parameters():
            param.data = param.data.clone()
        assert len(held) == len(list(model.parameters()))


@on_triton
def test_what_was_captured_elsewhere_shares_no_memory_with_what_will_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MOST", 0)
    batch = NeighborSampler(community(DEVICE), FANOUT, seed=3).sample([1, 2, 3])
    model = weft.nn.Stack(5, 3, layer="gcn", layers=2, hidden=6).to(DEVICE)
    run, clock = Replay(mean_loss, FANOUT), torch.tensor([0, 0, 0])
    run(model, batch, clock)
    pool = run._pool = object()
    run(model, batch, clock)
    assert run._pool is pool
    first = next(model.parameters())
    first.data = first.data.clone()
    run(model, batch, clock)
    assert run._pool is None


@on_triton
def test_a_step_that_cuda_cannot_capture_is_run_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise RuntimeError("operation would make the legacy stream depend\non a capturing blocking stream")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", refused)
    batch = NeighborSampler(community(DEVICE), FANOUT, seed=3).sample([1, 2, 3])
    model = weft.nn.Stack(5, 3, layer="gcn", layers=2, hidden=6).to(DEVICE)
    run, clock = Replay(mean_loss, FANOUT), torch.tensor([0, 0, 0])
    assert run(model, batch, clock) is not None
    assert run(model, batch, clock) is None
    assert not run.able
    assert run.reason == (
        "CUDA cannot capture the step (operation would make the legacy stream depend on a capturing blocking "
        "stream)"
    )
