"""A rehearsal counts what a run counts: every byte and message, by purpose, peer and epoch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import plan_jobs
import pytest
import torch
from ranks import run_ranks
from torch._functorch import config as functorch_config

from weft.config import make_recipe
from weft.datasets.npz import MASKS
from weft.layers.base import layers
from weft.plan.rehearse import stage
from weft.plan.rehearse.rehearsal import rehearse
from weft.strategies.base import strategies
from weft.strategies.strategy_cost import cost_of
from weft.train.resolve import resolve
from weft.train.workers.run_parts import prepare_parts

GCN, SAGE, GAT = {"name": "gcn"}, {"name": "sage"}, {"name": "gat"}
EXACT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (GCN, {"name": "halo"}),
    (SAGE, {"name": "vertex_cut"}),
    (SAGE, {"name": "sampled", "batch_size": 64, "fanout": [4, 4]}),
]
MORE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (GAT, {"name": "halo"}),
    (SAGE, {"name": "halo", "exchange": {"name": "quantised", "bits": 8}}),
    (SAGE, {"name": "halo", "exchange": {"name": "sampled", "p": 0.3}}),
    (SAGE, {"name": "halo", "exchange": "stale"}),
    (SAGE, {"name": "halo", "exchange": {"name": "skip", "interval": 2}}),
    (GCN, {"name": "sequential", "parts": 4}),
    (GCN, {"name": "grid"}),
    (GCN, {"name": "staged", "form": "1d"}),
    (SAGE, {"name": "vertex_cut", "exchange": {"name": "delayed", "r": 2}}),
    (SAGE, {"name": "vertex_cut", "exchange": "none"}),
    (SAGE, {"name": "clustered", "clusters": 8}),
    (SAGE, {"name": "saint"}),
    (SAGE, {"name": "control_variate"}),
    (SAGE, {"name": "sliced"}),
]


def tried(size: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return every configuration that a plan tries on so many workers, with the options it tries."""
    found = [
        (SAGE, {"name": name, **variant})
        for name in strategies.names()
        for variant in cost_of(name).variants(size)
        if cost_of(name).obstacle(size) is None
    ]
    # A grid of several columns is exact only: the strategy refuses the others, and a plan says so.
    return [
        each for each in found if each[1].get("columns", 1) == 1 or each[1].get("exchange") in ("exact", None)
    ]


def differences(size: int, cases: list[tuple[dict[str, Any], dict[str, Any]]], out: Path) -> list[Any]:
    """Return where what real ranks sent is not what was rehearsed on the same parts."""
    sent = run_ranks(size, plan_jobs.traffic, out, cases)
    wrong = []
    for number, (model, strategy) in enumerate(cases):
        resolved = resolve(plan_jobs.recipe(model, strategy), workers=size)
        played = rehearse(resolved, out / str(number) / "partition", workers=size, epochs=3)
        for rank, told in enumerate(played):
            planned, counted = plan_jobs.volumes(told.epochs), sent[rank][number]
            assert len(counted) == 3
            assert any(counted)
            wrong += [(strategy, rank, a, b) for a, b in zip(planned, counted, strict=True) if a != b]
    return wrong


def test_bytes_and_messages_of_two_ranks_are_those_of_the_run(tmp_path: Path) -> None:
    assert differences(2, EXACT, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_bytes_and_messages_of_every_strategy_are_those_of_the_run(tmp_path: Path, size: int) -> None:
    assert differences(size, EXACT + MORE, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_bytes_and_messages_of_all_that_a_plan_tries_are_those_of_the_run(tmp_path: Path, size: int) -> None:
    assert differences(size, tried(size), tmp_path) == []


def test_one_process_sends_nothing_and_its_graph_stays_as_it_was() -> None:
    resolved = resolve(plan_jobs.make_recipe({**plan_jobs.SMALL, "strategy": {"name": "single"}}))
    graph = resolved.open()
    before = graph.x.clone()
    (told,) = rehearse(resolved, graph, workers=1)
    assert told.epochs == []
    assert told.peak > told.held > graph.x.nbytes
    assert type(graph.x) is torch.Tensor  # real values still
    assert torch.equal(graph.x, before)
    assert told.work[-1]["forward"].products > 0
    assert told.work[-1]["backward"].edges > 0


def _with_edge_features(folder: Path) -> dict[str, Any]:
    """Return where a graph is whose messages are long enough to be compiled."""
    nodes, degree = 500, 9
    rng = np.random.default_rng(3)
    np.savez(
        folder / "graph.npz",
        edge_index=rng.integers(0, nodes, (2, nodes * degree)),
        num_nodes=nodes,
        x=rng.random((nodes, 12), dtype=np.float32),
        edge_attr=rng.random((nodes * degree, 4), dtype=np.float32),
        y=np.arange(nodes) % 3,
        **{f"{name}_mask": np.arange(nodes) % 3 == place for place, name in enumerate(MASKS)},
    )
    return {"name": "npz", "path": str(folder / "graph.npz")}


@pytest.mark.parametrize("layer", layers.names())
def test_every_layer_is_rehearsed_and_never_asks_for_the_memory_of_what_has_no_values(
    tmp_path: Path, layer: str
) -> None:
    asked = make_recipe(
        {
            "data": _with_edge_features(tmp_path),
            "model": {"name": layer, "hidden": 16},
            "strategy": {"name": "single"},
        }
    )
    resolved = resolve(asked)
    with functorch_config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
        (told,) = rehearse(resolved, resolved.open(), workers=1)
    assert told.work[-1]["forward"].calls > 0  # a layer without weights between hops goes over edges once
    assert told.work[-1]["backward"].products > 0
    assert told.peak < 64 << 20  # and not that of a million edges, on which messages are traced


@pytest.mark.parametrize("layer", ["edgeconv", "monet"])
def test_compiled_messages_are_rehearsed_on_workers(tmp_path: Path, layer: str) -> None:
    asked = plan_jobs.recipe({"name": layer, "hidden": 32}, {"name": "halo"})
    resolved = resolve(asked, workers=2)
    parts = prepare_parts(resolved, tmp_path, workers=2)
    played = rehearse(resolved, parts, workers=2, epochs=1)
    assert all(rank.epochs[0]["bytes_sent"] for rank in played)
    assert all(rank.work[0]["forward"].edges for rank in played)


def test_a_rank_that_fails_ends_the_rehearsal_with_its_own_error(tmp_path: Path) -> None:
    resolved = resolve(plan_jobs.recipe(GCN, {"name": "halo"}), workers=2)
    with pytest.raises(Exception, match="partition"):
        rehearse(resolved, tmp_path / "nothing" / "partition", workers=2)


@pytest.mark.parametrize("strategy", ["halo", "sampled"])
def test_ranks_that_are_threads_meet_where_pairs_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(stage, "PATIENCE", 20.0)
    asked = plan_jobs.recipe(SAGE, {"name": strategy})
    resolved = resolve(replace(asked, task={"name": "link_prediction"}), workers=2)
    parts = prepare_parts(resolved, tmp_path, workers=2)
    played = rehearse(resolved, parts, workers=2, epochs=1)
    assert all(rank.epochs[0]["bytes_sent"] for rank in played)
