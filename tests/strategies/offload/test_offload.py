"""Offload gives the outputs and gradients of one pass over the whole graph, whatever memory it is given."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from halo_jobs import graph_of
from offload_costs import least_memory
from torch import Tensor

import weft
from weft.errors import GraphError, InputError, RecipeError
from weft.layers.base import Layer
from weft.sizes import parse_bytes
from weft.strategies.offload.offload import Offload, cost_of
from weft.strategies.single import Single
from weft.train.model import adapt, build_model

pytestmark = pytest.mark.gpu
DEVICE = torch.device(os.environ.get("WEFT_TEST_DEVICE", "cpu"))
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("sage", "directed", {"dropout": 0.3, "layers": 3}),
    ("sage", "isolated", {"aggregate": "max", "norm": "layer", "residual": True}),
    ("gcn", "sparse", {"dropout": 0.2}),
    ("gat", "hub", {"heads": 2, "attention_dropout": 0.4, "jumping": "cat"}),
    ("gatv2", "hub", {"heads": 2, "dropout": 0.0}),
    ("gatv2", "attributed", {"heads": 2}),
    ("edgeconv", "directed", {"jumping": "max"}),
    ("rgcn", "typed", {"dropout": 0.2}),
    ("hgt", "typed", {"heads": 2}),
]


def gradients(strategy: Single, model: torch.nn.Module) -> tuple[Tensor, list[Tensor]]:
    out = strategy.layout.training_rows(model)
    loss = (out.double() * torch.arange(out.shape[1], device=out.device)).square().sum()
    model.zero_grad()
    loss.backward()
    grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]
    return out.detach().cpu(), [each.clone().cpu() for each in grads]


@pytest.mark.parametrize(("name", "kind", "options"), MODELS, ids=lambda value: str(value))
def test_outputs_and_gradients_are_those_of_the_whole_graph(
    name: str, kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = adapt(graph_of(kind), name).to(dtype=torch.float64)
    model = build_model(graph, name, {"hidden": 8, **options}, seed=1).double()
    expected = gradients(Single(graph, seed=3), model)
    memory = 3 * least_memory(graph, cost_of(model, graph))  # type: ignore[arg-type]
    strategy = Single(graph, seed=3, device=DEVICE, activation="offload", memory=memory)
    model.to(DEVICE)
    offload = strategy.layout.offload
    assert offload is not None
    # far more than so small a graph takes, and the share of a chunk so small: what is held leaves as much
    offload.memory, offload._share = 1 << 30, 0.45 * memory / (1 << 30)
    # read over the link; held on the device, by a list of a chunk's own and by the numbers of nodes
    for near, whole in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)):
        for bound, value in (("_NEAR", near), ("_JOINED", near), ("_WHOLE", whole)):
            monkeypatch.setattr(f"weft.strategies.offload.offload.{bound}", value)
        compare(strategy, model, expected)
        plan = offload.plan(model)  # type: ignore[arg-type]
        assert (plan.messages is not None) == (kind not in ("sparse", "typed"))
        assert plan.near == (near > 0)
        assert plan.whole == (whole > 0 and plan.messages is not None)


class Gated(Layer):
    """A layer of a user's own, which reads one number and two columns of a source."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.gate, self.value = torch.nn.Linear(in_features, 1), torch.nn.Linear(2, out_features)

    def forward(self, block: Any, h: Tensor) -> Tensor:
        def message(u: Tensor, v: Tensor) -> Tensor:
            return (self.gate(u) * v[:, :1]).sigmoid() * self.value(u[:, :2] + v[:, :2])

        return block.propagate(message, src=(h,), dst=(block.dst(h),), reduce="mean")


@pytest.mark.parametrize("memory", [None, 10**8])
def test_a_pass_over_nodes_without_features_reads_their_learned_rows(memory: int | None) -> None:
    graph = graph_of("directed").with_data(x=None)
    model = build_model(graph, "sage", {"hidden": 8}, seed=1).to(DEVICE).eval()
    memory = memory or 3 * least_memory(graph, cost_of(model, graph))  # as little as goes, or all at once
    block = graph.to(device=DEVICE).block()
    with torch.no_grad():
        expected = model([block] * 2, None).cpu()
        found = Offload(graph, DEVICE, memory=memory)(model)
    torch.testing.assert_close(found, expected)


def test_a_message_sends_the_narrowest_values_of_a_node() -> None:
    graph = graph_of("directed").to(dtype=torch.float64)
    model: Any = build_model(graph, "edgeconv", {"hidden": 4, "layers": 2}, seed=1)
    model.layers[0] = Gated(6, 4)
    model.double()
    expected = gradients(Single(graph, seed=3), model)
    memory = 3 * least_memory(graph, cost_of(model, graph))
    strategy = Single(graph, seed=3, activation="offload", memory=memory)
    compare(strategy, model, expected)
    assert strategy.layout.offload is not None
    messages = strategy.layout.offload.plan(model).messages
    assert messages is not None
    assert sum(each.nbytes for each in messages[0]) == 3 * 8  # of six numbers


def compare(strategy: Single, model: torch.nn.Module, expected: tuple[Tensor, list[Tensor]]) -> None:
    found = gradients(strategy, model)
    assert strategy.layout.offload is not None
    assert len(strategy.layout.offload.chunks(model)) > 1  # type: ignore[arg-type]
    assert torch.allclose(found[0], expected[0], rtol=1e-9, atol=1e-9)
    for a, b in zip(found[1], expected[1], strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-8)


def test_memory_is_counted_beside_what_lies_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fractions = [0.75]
    for name, given in (
        ("get_device_properties", lambda place: SimpleNamespace(total_memory=1000)),
        ("empty_cache", lambda: None),
        ("memory_reserved", lambda place: 300),
        ("get_per_process_memory_fraction", lambda place: fractions[-1]),
        ("set_per_process_memory_fraction", lambda fraction, place: fractions.append(fraction)),
    ):
        monkeypatch.setattr(torch.cuda, name, given)
    offload = Offload(graph_of("directed"), torch.device("cpu"), memory=200)
    offload.device = torch.device("cuda", 0)
    with offload._bounded():
        assert fractions[-1] == pytest.approx(0.5)
    assert fractions[-1] == 0.75
    offload.memory = 700
    with offload._bounded():
        assert fractions[-1] == 0.75  # what was set before is not widened


def test_a_gradient_of_the_gradient_is_refused() -> None:
    graph = graph_of("hub")
    model = build_model(graph, "sage", {"hidden": 8}).to(DEVICE)
    out = Single(graph, device=DEVICE, activation="offload", memory=1 << 30).layout.training_rows(model)
    with pytest.raises(GraphError, match=r"first derivatives alone; .* need activation = 'keep'"):
        torch.autograd.grad(out.sum(), [*model.parameters()], create_graph=True)


def test_too_little_memory_is_said_with_numbers() -> None:
    graph = graph_of("hub")
    model = build_model(graph, "sage", {"hidden": 8})
    with pytest.raises(RecipeError, match=r"takes .* on the device"):
        Offload(graph, torch.device("cpu"), memory=1000)(model)


@pytest.mark.parametrize(
    ("model", "options", "memory", "message"),
    [
        ("sage", {"hidden": 8}, "1000B", r"takes at least .*B, got 1000 bytes"),
        ("sage", {"norm": "batch"}, "1GiB", "normalises over all nodes"),
        ("appnp", {}, "1GiB", "hops at once; use activation = 'keep'"),
    ],
)
def test_is_refused_before_there_is_a_run(
    tmp_path: Path, model: str, options: dict[str, Any], memory: str, message: str
) -> None:
    given = {"activation": "offload", "memory": memory}
    with pytest.raises(InputError, match=message):
        weft.train(graph_of("hub"), model, **options, strategy=given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_run_in_chunks_is_refused() -> None:
    graph = graph_of("directed")
    offload = Offload(graph, torch.device("cpu"), memory=1 << 20)
    for model, message in (
        (torch.nn.Linear(3, 3), "expected a weft.nn.Stack, got Linear"),
        (build_model(graph, "sage", {"norm": "batch"}), "normalises over all nodes"),
        (build_model(graph, "appnp", {}), "hops at once"),
    ):
        with pytest.raises(InputError, match=message):
            offload(model)
    with pytest.raises(RecipeError, match=r"strategy.memory: bounds activation = 'offload'"):
        Single(graph, memory="1GiB")
    for given in ("8 parsecs", "GiB", "-3", ""):
        with pytest.raises(RecipeError, match="expected a size such as"):
            parse_bytes(given)
    assert [parse_bytes(given) for given in ("8GiB", "500 MB", 4096, "1.5k")] == [
        8 << 30,
        500_000_000,
        4096,
        1536,
    ]


def test_a_run_with_offload_is_that_of_the_whole_graph() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=200, degree=6, classes=3, features=8, seed=1)
    settings: dict[str, Any] = {"hidden": 8, "epochs": 6, "heads": 2, "dropout": 0.4, "lr": 0.01}
    device = DEVICE.type
    whole = weft.train(graph, "gat", **settings, device=device)
    parts = weft.train(
        graph, "gat", **settings, device=device, strategy={"activation": "offload", "memory": "4GiB"}
    )
    assert parts.loss == pytest.approx(whole.loss, rel=1e-4)
    assert parts.test_accuracy == pytest.approx(whole.test_accuracy, abs=0.02)
