"""Records are what the sampler draws: the same rows, edges and order, however many records a batch has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flatten_graphs import numbered_graph, plain_graph, typed_graph, typed_with_times, with_times
from spark import GROUP, kill_python_once
from tables import small_disk

import weft
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.pipeline.engines.base import Engine, open_engine
from weft.pipeline.flatten import flattening as module
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import merge, read_manifest, read_records
from weft.samplers import NeighborSampler
from weft.samplers.core.request import Request
from weft.samplers.neighbor import run


def check_equal(graph: weft.Graph, folder: Path, fanout: list[int], way: dict[str, Any]) -> None:
    """Hold records to the sampler: rows, edges, their order and what each edge stands for."""
    records = read_records(folder)
    sampler = NeighborSampler(graph, fanout, seed=7, **way)
    temporal = bool(way.get("temporal"))
    for some in ([4], [0, 11, 5], list(range(20))):
        options = {"num_hops": len(fanout), "node_offsets": graph.node_offsets, "temporal": temporal}
        batch = merge(records.take(some), **options)
        seeds = torch.from_numpy(records.column("target").to_numpy()[some])
        times = graph.node_data[graph.node_types[0]]["time"][seeds] if temporal else None
        ranks = sampler._ranks(seeds, times)
        found = run(Request(sampler.slots, seeds, sampler.fanout, sampler.keys(0, 0), seed_time=ranks))
        assert batch.nodes.tolist() == found.nodes.tolist()
        assert (batch.seed_of is None) == (found.seed_of is None)
        for ours, theirs in zip(batch.hops, found.hops, strict=True):
            assert ours.indptr.tolist() == theirs.indptr.tolist()
            assert ours.indices.tolist() == theirs.indices.tolist()
            assert ours.edge_ids.tolist() == theirs.edge_ids.tolist()
            assert ours.num_rows == theirs.num_rows
            scale = sampler.scale_of(theirs)
            assert (ours.scale is None) == (scale is None)
            if scale is not None:
                np.testing.assert_allclose(ours.scale, scale.numpy(), rtol=1e-6)
        if temporal:
            blocks = sampler.sample(seeds, times=times).blocks
            seen = {}
            for place, record in enumerate(records.take(some).to_pylist()):
                seen |= {(place, n): d for n, d in zip(record["nodes"], record["degree"])}
            rows = zip(batch.seed_of.tolist(), batch.nodes.tolist())
            assert [seen[row] for row in rows] == blocks[0].in_degree(rows="src").tolist()


@pytest.mark.parametrize("make", [plain_graph, numbered_graph, typed_graph])
@pytest.mark.parametrize("fanout", [[3, 2], [-1], [2, 0, 3]])
def test_a_batch_of_records_is_the_batch_of_the_sampler(make: Any, fanout: list[int], tmp_path: Path) -> None:
    graph = make()
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=fanout, targets="labelled", seed=7, hub=8)
    check_equal(graph, tmp_path / "r", fanout, {})


@pytest.mark.parametrize("make", [plain_graph, numbered_graph, None])
@pytest.mark.parametrize(
    "way", [{"weight": "weight"}, {"temporal": True}, {"weight": "weight", "temporal": True}]
)
def test_weighted_and_temporal_records_too(make: Any, way: dict[str, Any], tmp_path: Path) -> None:
    graph = with_times(make()) if make is not None else typed_with_times()
    graph.save(tmp_path / "g")
    for hub, fanout in ((8, [3, 2]), (0, [2, -1])):
        flatten(
            tmp_path / "g",
            tmp_path / "r",
            fanout=fanout,
            targets="labelled",
            seed=7,
            hub=hub,
            overwrite=hub == 0,
            **way,
        )
        check_equal(graph, tmp_path / "r", fanout, way)


@GROUP
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "case", ["weighted", *(pytest.param(name, marks=pytest.mark.slow) for name in ("uniform", "temporal"))]
)
def test_spark_whose_processes_are_killed_and_duckdb_give_the_same_rows(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: dict[str, tuple[weft.Graph, list[int], dict[str, Any]]] = {
        "weighted": (typed_with_times(), [3, -1], {"weight": "weight"}),
        "uniform": (plain_graph(), [3, 2], {}),
        "temporal": (with_times(numbered_graph()), [3, 2], {"temporal": True}),
    }
    graph, fanout, way = cases[case]
    monkeypatch.setattr(module, "PART_EDGES", 150)  # several files
    kill_python_once(monkeypatch, tmp_path / "marks")  # and the task is run again
    graph.save(tmp_path / "g")
    options: dict[str, Any] = {"fanout": fanout, "targets": "labelled", "seed": 7, "hub": 8, **way}
    made = {
        engine: flatten(tmp_path / "g", tmp_path / engine, engine=engine, features="value", **options)
        for engine in ("duckdb", "spark")
    }
    assert made["duckdb"]["parts"] == made["spark"]["parts"] > 1
    killed = {path.name for path in (tmp_path / "marks").iterdir()}
    assert killed & {"numbered", "draws"}, "a process that draws was killed"
    assert read_records(tmp_path / "duckdb").equals(read_records(tmp_path / "spark"))
    check_equal(graph, tmp_path / "spark", fanout, way)


def test_what_cannot_be_flattened_is_one_line(tmp_path: Path) -> None:
    typed_graph().save(tmp_path / "g")
    with pytest.raises(GraphError, match="no train_mask; targets may be: labelled, all"):
        flatten(tmp_path / "g", tmp_path / "r")
    with pytest.raises(RecipeError, match="fanout: expected numbers"):
        flatten(tmp_path / "g", tmp_path / "r", fanout=[-2], targets="all")
    with pytest.raises(
        RecipeError, match=r"targets: 30 nodes are in 'labelled' and in 'all'.*leave one of them"
    ):
        flatten(tmp_path / "g", tmp_path / "r", targets="labelled, all")
    with pytest.raises(GraphError, match="no edge data 'w'; it has: none"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", weight="w")
    with pytest.raises(GraphError, match="no edge data 'time'"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", temporal=True)
    with pytest.raises(RecipeError, match="hub: expected a number"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", hub=-1)
    with pytest.raises(RecipeError, match="features: expected 'reference' or 'value', got 'vlaue'"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", features="vlaue")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="--engine spark; the engine is duckdb"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", master="local[2]")
    with pytest.raises(InputError, match=r"more than .* give --yes"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", limit=10)
    with pytest.raises(FormatError, match="not a folder of records written"):
        read_manifest(tmp_path / "g")
    assert not (tmp_path / "r").exists()
    times = torch.arange(60.0)
    times[7] = torch.nan
    with_times(plain_graph()).with_data(time=times).save(tmp_path / "timed")
    with pytest.raises(GraphError, match="the time of node 7 is not a finite number"):
        flatten(tmp_path / "timed", tmp_path / "r", targets="all", temporal=True)
    edges = {("b", "s", "a"): {"edge_index": [[0, 1], [0, 1]], "edge_time": [3, 4]}}
    nodes = {"a": {"num_nodes": 2, "time": torch.tensor([5, 6])}, "b": {"num_nodes": 2}}
    weft.Graph.from_types(nodes, edges).save(tmp_path / "some")
    with pytest.raises(GraphError, match="node 2 is a target without a time, which nodes of a have"):
        flatten(tmp_path / "some", tmp_path / "r", targets="all", temporal=True)


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def a_file_at_once(*words: Any, **options: Any) -> Engine:
        engine = open_engine(*words, **options)
        engine.capacity = 1
        return engine

    monkeypatch.setattr(module, "PART_EDGES", 40)
    monkeypatch.setattr(module, "open_engine", a_file_at_once)
    plain_graph().save(tmp_path / "g")
    whole = flatten(tmp_path / "g", tmp_path / "whole", fanout=[3, 2])
    seen: list[str] = []

    def stop(line: str) -> None:
        if line.startswith("2 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], say=stop)
    assert not (tmp_path / "r").exists()
    with pytest.raises(RecipeError):  # an error of the user's leaves what is there
        flatten(tmp_path / "g", tmp_path / "r", fanout=[-3])
    with pytest.raises(InputError, match="give --yes"):
        flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], limit=10)
    assert not (tmp_path / ".r.work" / "engine").exists()
    flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], say=seen.append)
    assert f"continuing with 2 of {whole['parts']} files that are there already" in seen
    assert read_records(tmp_path / "r").equals(read_records(tmp_path / "whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "r", "whole"]


def test_another_fanout_does_not_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_EDGES", 40)
    plain_graph().save(tmp_path / "g")

    def stop(line: str) -> None:
        if " files" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], say=stop)
    flatten(tmp_path / "g", tmp_path / "r", fanout=[2, 3])
    flatten(tmp_path / "g", tmp_path / "other", fanout=[2, 3])
    assert read_records(tmp_path / "r").equals(read_records(tmp_path / "other"))


def test_a_full_disk_or_too_little_memory_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    graph = weft.Graph.from_edges(draw.integers(0, 20_000, (2, 200_000)), num_nodes=20_000)
    graph.save(tmp_path / "g")
    with pytest.raises(InputError, match=r"a memory limit of 4.77 MiB is too small .* --memory") as raised:
        flatten(tmp_path / "g", tmp_path / "out" / "r", fanout=[10, 10], targets="all", memory="5MB")
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "out").iterdir()) == []
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        with pytest.raises(FormatError, match="No space left on device") as raised:
            flatten(tmp_path / "g", disk / "r", fanout=[10, 10], targets="all", memory="2GB")
        assert "\n" not in str(raised.value)
        assert list(disk.iterdir()) == []
    with small_disk(tmp_path / "locked", "size=1m,ro") as disk, pytest.raises(FormatError, match="Read-only"):
        flatten(tmp_path / "g", disk / "r", fanout=[1], targets="all")
