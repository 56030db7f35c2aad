"""A record holds all of its neighbourhood."""

from pathlib import Path

import pytest
import torch
from flatten_graphs import plain_graph

import weft
from weft.pipeline.flatten import flattening as module
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import read_manifest, read_records


def test_a_record_holds_all_of_its_neighbourhood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_EDGES", 40)  # several files
    monkeypatch.setattr("weft.pipeline.flatten.hops.CHUNK", 64)
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
