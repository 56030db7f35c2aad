"""Training with `activation = "auto"`: the bits of keeping everything, in the memory that was given."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from halo_jobs import graph_of
from planned_runs import planned, trained, wide_graph
from torch import Tensor, nn

from weft.errors import InputError, RecipeError
from weft.events import Event, Events
from weft.graph.graph import Graph
from weft.sizes import parse_bytes
from weft.strategies.memory.held import HeldBytes, tensors_in
from weft.strategies.single import Single
from weft.train.model import adapt, build_model

MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("sage", "directed", {"dropout": 0.3, "layers": 3}),
    ("sage", "isolated", {"aggregate": "max", "norm": "batch", "residual": True, "layers": 3}),
    ("gcn", "sparse", {"dropout": 0.2, "layers": 4}),
    ("gat", "hub", {"heads": 2, "attention_dropout": 0.4, "jumping": "cat"}),
    ("gatv2", "attributed", {"heads": 2, "dropout": 0.2, "layers": 3}),
    ("edgeconv", "directed", {"jumping": "max"}),
    ("rgcn", "typed", {"dropout": 0.2}),
    ("gin", "directed", {"dropout": 0.2, "layers": 4}),
]


@pytest.mark.parametrize(("name", "kind", "options"), MODELS, ids=lambda value: str(value))
def test_whatever_is_chosen_the_bits_are_those_of_keeping_everything(
    name: str, kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = adapt(graph_of(kind), name)
    _, expected = trained(graph, name, options)
    for speed, chosen in ((1e-12, "offload"), (1e3, "recompute")):  # moving is free, and never pays
        monkeypatch.setattr("weft.strategies.memory.planned.aside_seconds", lambda *_, speed=speed: speed)
        strategy, found = trained(graph, name, options, activation="auto", memory=1 << 30)
        most = planned(strategy)
        assert {each["choice"] for each in most.told()["layers"]} == {"keep"}
        assert_bits(found, expected)
        memory = max(most.least, int(0.85 * most.everything))
        strategy, found = trained(graph, name, options, activation="auto", memory=memory)
        assert chosen in {each["choice"] for each in planned(strategy).told()["layers"]}
        assert planned(strategy).cost.peak <= memory
        assert_bits(found, expected)


def assert_bits(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("speed", [1e-12, 1e-9, 1e3])
@pytest.mark.parametrize("jumping", [None, "cat"])
def test_a_step_stays_within_the_memory_given(
    speed: float, jumping: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.strategies.memory.planned.aside_seconds", lambda *_: speed)
    graph, options = wide_graph(), {"layers": 5, "hidden": 64, "dropout": 0.3, "jumping": jumping}
    _, everything = measured(graph, options)
    strategy, _ = measured(graph, options, activation="auto", memory="1GiB")
    plan = planned(strategy)
    assert everything <= plan.everything < 1.2 * everything  # what is planned with is what is taken
    for share in (0.0, 0.3, 0.7):
        memory = int(plan.least + share * (plan.everything - plan.least))
        strategy, peak = measured(graph, options, activation="auto", memory=memory)
        assert peak <= memory
        assert share > 0 or memory < everything
        assert planned(strategy).cost.seconds > 0


def measured(graph: Graph, options: dict[str, Any], **how: Any) -> tuple[Single, int]:
    """Return a strategy, and the most bytes that its second and third steps took beside what lay there."""
    model = build_model(graph, "sage", options, seed=1)
    strategy = Single(graph, **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = HeldBytes()
    for held in (*tensors_in(graph), *model.parameters(), *model.buffers()):
        watch.hold(held)
    before = watch.held
    with watch:
        for _ in range(3):
            strategy.epoch(model, optimizer)
    return strategy, watch.peak - before


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_process_stays_within_the_memory_given(share: float) -> None:
    plan = json.loads(resident(1 << 33)[1])
    memory = int(plan["least"] + share * (plan["everything"] - plan["least"]))
    grown, _ = resident(memory)
    assert grown <= memory
    assert memory < resident(None)[0]  # what keeping everything takes


def resident(memory: int | None) -> tuple[int, str]:
    """Return by how much a process of its own grew at most while it trained, and the plan."""
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT, json.dumps(memory)], capture_output=True, check=True
    )
    grown, plan = done.stdout.decode().splitlines()
    return int(grown), plan


_RESIDENT = """
import json, sys, torch
from pathlib import Path
from weft.graph.graph import Graph
from weft.strategies.single import Single
from weft.train.model import build_model

def status(name):
    return 1024 * int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])

torch.set_num_threads(1)
memory, nodes = json.loads(sys.argv[1]), 30000
how = {} if memory is None else {"activation": "auto", "memory": memory}
def trained(nodes, **how):
    draw = torch.Generator().manual_seed(1)
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=draw)
    x, y = torch.randn(nodes, 64, generator=draw), torch.randint(0, 8, (nodes,), generator=draw)
    graph = Graph.from_edges(edges, num_nodes=nodes, x=x, y=y, train_mask=torch.arange(nodes) % 2 == 0)
    model = build_model(graph, "sage", {"layers": 6, "hidden": 128, "dropout": 0.3}, seed=1)
    strategy, optimizer = Single(graph, **how), torch.optim.SGD(model.parameters(), lr=0.01)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(3):
        strategy.epoch(model, optimizer)
    return strategy, status("VmHWM") - before
trained(100, **({} if memory is None else {"activation": "auto"}))  # libraries are loaded
strategy, grown = trained(nodes, **how)
print(grown)
print(json.dumps({} if memory is None else strategy.layout.layers.plan.told()))
"""


def test_a_model_that_is_no_stack_is_refused() -> None:
    with pytest.raises(InputError, match=r"'auto' runs layers one by one: expected a weft.nn.Stack"):
        Single(wide_graph(100), activation="auto").check_model(nn.Linear(3, 4))


def test_memory_without_a_bound_on_it_is_refused() -> None:
    with pytest.raises(RecipeError, match="bounds activation = 'offload' and 'auto'"):
        Single(wide_graph(100), memory="1GiB")


def test_the_plan_is_told_once() -> None:
    told: list[Event] = []
    graph = wide_graph(300)
    trained(graph, "sage", {}, activation="auto", memory="1GiB", events=Events(sinks=[told.append]))
    (plan,) = [each for each in told if each["event"] == "memory_plan"]
    assert plan["peak"] == plan["everything"] <= plan["memory"] == parse_bytes("1GiB")
    assert [each["choice"] for each in plan["layers"]] == ["keep", "keep"]
