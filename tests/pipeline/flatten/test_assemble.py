"""Records as rows of a file: features by value are typed and sparse."""

from pathlib import Path

import numpy as np
import torch
from flatten_graphs import typed_graph

from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import read_manifest, read_records


def test_features_by_value_are_typed_and_sparse(tmp_path: Path) -> None:
    dense, sparse = torch.randn(20, 2), torch.randn(30, 9).relu().to_sparse()
    graph = typed_graph().with_data(x={"a": sparse, "b": dense})
    graph.save(tmp_path / "g")
    flatten(tmp_path / "g", tmp_path / "r", fanout=[3, 2], targets="labelled", features="value")
    told = read_manifest(tmp_path / "r")["values"]
    assert [(entry["column"], entry["width"], entry["sparse"]) for entry in told] == [
        ("x.a", 9, True),
        ("x.b", 2, False),
    ]
    whole = sparse.to_dense()
    for record in read_records(tmp_path / "r").to_pylist():
        first = [node for node in record["nodes"] if node < 30]
        rows = torch.zeros(len(first), 9)
        owner = np.repeat(np.arange(len(first)), record["x.a.counts"])
        rows[owner, record["x.a.columns"]] = torch.tensor(record["x.a.values"])
        assert torch.equal(rows, whole[first])
        second = torch.tensor([node - 30 for node in record["nodes"] if node >= 30], dtype=torch.long)
        assert torch.equal(torch.tensor(record["x.b"]).reshape(-1, 2), dense[second])
        assert record["edge.type"] == graph.edge_type[record["edge"]].tolist()
