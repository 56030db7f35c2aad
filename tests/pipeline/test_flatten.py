"""Records are what the sampler draws: the same rows, edges and order, however many records a batch has."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import weft
from weft.cli.main import main
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.pipeline import flatten as module
from weft.pipeline.flatten import flatten
from weft.pipeline.records import merge, read_manifest, read_records
from weft.samplers import NeighborSampler
from weft.samplers.neighbor import run
from weft.samplers.request import Request


def plain_graph() -> weft.Graph:
    """Return a graph with hubs, loops, repeated edges and isolated nodes."""
    draw = np.random.default_rng(3)
    edges = np.stack([draw.integers(0, 60, 900), (draw.random(900) ** 3 * 50).astype(np.int64)])
    y = torch.from_numpy(draw.integers(0, 3, 60))
    train = torch.arange(60) < 25
    return weft.Graph.from_edges(edges, num_nodes=60, x=torch.randn(60, 3), y=y, train_mask=train)


def numbered_graph() -> weft.Graph:
    """Return a graph of one node type and numbered relations."""
    graph = plain_graph()
    kinds = torch.arange(graph.num_edges) % 3
    return weft.Graph.from_edges(graph.edge_index, num_nodes=60, y=graph.y, edge_type=kinds)


def typed_graph() -> weft.Graph:
    """Return a graph of two node types and three relations."""
    draw = np.random.default_rng(4)

    def pairs(src: int, dst: int) -> Any:
        return np.stack([draw.integers(0, src, 120), draw.integers(0, dst, 120)])

    nodes = {"a": {"num_nodes": 30, "y": np.arange(30) % 2}, "b": {"num_nodes": 20}}
    edges = {("a", "r", "a"): pairs(30, 30), ("b", "s", "a"): pairs(20, 30), ("a", "t", "b"): pairs(30, 20)}
    return weft.Graph.from_types(nodes, edges)


@pytest.mark.parametrize("make", [plain_graph, numbered_graph, typed_graph])
@pytest.mark.parametrize("fanout", [[3, 2], [-1], [2, 0, 3]])
def test_a_batch_of_records_is_the_batch_of_the_sampler(make: Any, fanout: list[int], tmp_path: Path) -> None:
    graph = make()
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=fanout, targets="labelled", seed=7)
    records = read_records(tmp_path / "r")
    sampler = NeighborSampler(graph, fanout, seed=7)
    for some in ([4], [0, 11, 5], list(range(20))):
        batch = merge(records.take(some), num_hops=len(fanout), node_offsets=graph.node_offsets)
        seeds = torch.from_numpy(records.column("target").to_numpy()[some])
        found = run(Request(sampler.slots, seeds, sampler.fanout, sampler.keys(0, 0)))
        assert batch.nodes.tolist() == found.nodes.tolist()
        for ours, theirs in zip(batch.hops, found.hops, strict=True):
            assert ours.indptr.tolist() == theirs.indptr.tolist()
            assert ours.indices.tolist() == theirs.indices.tolist()
            assert ours.edge_ids.tolist() == theirs.edge_ids.tolist()
            assert ours.num_rows == theirs.num_rows


def test_a_record_holds_all_of_its_neighbourhood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_EDGES", 40)  # several files
    monkeypatch.setattr(module, "CHUNK", 64)
    graph = plain_graph()
    ids = [f"n{row:02d}" for row in range(60)]
    graph = weft.Graph.from_edges(
        graph.edge_index, x=graph.x, y=graph.y, train_mask=graph.train_mask, node_ids=ids
    )
    graph.save(tmp_path / "g")
    result = flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], features="value")
    records = read_records(tmp_path / "r").to_pylist()
    assert len(read_manifest(tmp_path / "r")["parts"]) == result["parts"] > 2
    assert [record["target"] for record in records] == list(range(25))
    degree = graph.in_degree().tolist()
    for record in records:
        assert record["id"] == ids[record["target"]]
        assert record["y"] == int(graph.y[record["target"]])
        assert set(record["src"]) | set(record["dst"]) | {record["target"]} == set(record["nodes"])
        assert record["degree"] == [degree[node] for node in record["nodes"]]
        assert torch.equal(torch.tensor(record["x"]).reshape(-1, 3), graph.x[record["nodes"]])
    assert result["nodes"] == sum(len(record["nodes"]) for record in records)
    assert result["replication"] == result["nodes"] / 60


def test_what_cannot_be_flattened_is_one_line(tmp_path: Path) -> None:
    typed_graph().save(tmp_path / "g")
    with pytest.raises(GraphError, match="no train_mask; targets may be: labelled, all"):
        flatten(tmp_path / "g", tmp_path / "r")
    with pytest.raises(GraphError, match="--features reference"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", features="value")
    with pytest.raises(RecipeError, match="fanout: expected numbers"):
        flatten(tmp_path / "g", tmp_path / "r", fanout=[-2], targets="all")
    with pytest.raises(InputError, match=r"more than .* give --yes"):
        flatten(tmp_path / "g", tmp_path / "r", targets="all", limit=10)
    with pytest.raises(FormatError, match="not a folder of records"):
        read_manifest(tmp_path / "g")
    assert not (tmp_path / "r").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain_graph().save(tmp_path / "g")
    words = [
        "flatten",
        str(tmp_path / "g"),
        "--hops",
        "2",
        "--fanout",
        "4",
        "--out",
        str(tmp_path / "r"),
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 25
    assert read_manifest(tmp_path / "r")["fanout"] == [4, 4]
    assert isinstance(read_records(tmp_path / "r"), pa.Table)
    assert main([*words, "--overwrite", "--fanout", "4,x"]) == 2
    assert main([*words, "--overwrite", "--fanout", "4,3,2"]) == 2
