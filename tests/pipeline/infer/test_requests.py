"""Nodes asked for by the user's own ids are found, and no more than they need is computed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from infer_cases import (
    X,
    forward,
    near,
    outputs,
    stack,
    typed,
)

from weft.errors import InputError
from weft.graph import Graph
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.pipeline.infer.requests import read_nodes, read_pairs


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", ","), ("a.txt", "\t")])
def test_columns_are_told_apart_by_commas_or_tabs(tmp_path: Path, name: str, mark: str) -> None:
    """Files of facts come as .txt of either kind, and ingest takes both."""
    graph = Graph.from_edges([[0, 1], [1, 2]], node_ids=["a", "b", "c"])
    (tmp_path / name).write_text(f"source{mark}target\nc{mark}a\nb{mark}b\n")
    pairs = read_pairs(graph, tmp_path / name, torch.ones(1, dtype=torch.bool))
    assert (pairs.src.tolist(), pairs.dst.tolist()) == ([2, 1], [0, 1])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_only_what_the_asked_nodes_need_is_computed(engine: str, tmp_path: Path) -> None:
    names = [f"n{v}" for v in range(51)]
    line = Graph.from_edges([list(range(50)), list(range(1, 51))], x=X[:51], y=[0, 1, 2] * 17, node_ids=names)
    model = stack(line, "sage")
    pq.write_table(pa.table({"id": ["n40", "n7"]}), tmp_path / "ids.parquet")
    result = infer_model(
        model_scoring(model, line), tmp_path / "out", nodes=tmp_path / "ids.parquet", setting=Setting(engine)
    )
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    assert table.column("id").to_pylist() == ["n40", "n7"]
    assert near(outputs(tmp_path / "out"), forward(model, line)[[40, 7]])
    assert result["evaluations"] == 6  # two nodes, and one more each in the first layer
    assert json.loads((tmp_path / "out" / "_infer.json").read_text())["engine"] == engine
    # Readers of a folder find one table, and skip the note and what has other columns.
    assert pads.dataset(tmp_path / "out").to_table().equals(table)
    assert len(pads.dataset(tmp_path / "out" / "_embeddings").to_table()) == 2
    assert result["files"] == ["_embeddings/embeddings.parquet", "predictions.parquet"]
    (tmp_path / "out" / "_infer.json").rename(tmp_path / "out" / "infer.json")  # as weft wrote it before
    infer_model(model_scoring(model, line), tmp_path / "out", overwrite=True, setting=Setting(engine))
    assert not (tmp_path / "out" / "infer.json").exists()


def test_ids_of_files_are_found_as_they_are_written(tmp_path: Path) -> None:
    named = Graph.from_edges([[0, 1], [1, 2]], node_ids=["007", "7", "a,b"])
    (tmp_path / "ids.csv").write_text('id\n7\n007\n"a,b"\n')
    assert read_nodes(named, tmp_path / "ids.csv").tolist() == [1, 0, 2]
    numbers = Graph.from_edges([[0, 1], [1, 2]], node_ids=[5, 2**62, -3])
    (tmp_path / "n.csv").write_text(f"id\n{2**62}\n-3\n")
    assert read_nodes(numbers, tmp_path / "n.csv").tolist() == [1, 2]
    pq.write_table(pa.table({"type": ["paper", "author"], "id": ["p3", "2"]}), tmp_path / "typed.parquet")
    assert read_nodes(typed(), tmp_path / "typed.parquet").tolist() == [2, 12]
    (tmp_path / "bad.csv").write_text("id\n8\n")
    (tmp_path / "twice.csv").write_text("id\n7\n7\n")
    (tmp_path / "word.csv").write_text("id\nx\n")
    (tmp_path / "large.csv").write_text("id\n5\n99999999999999999999\n")
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bare.csv").write_text("7\n007\n")
    for graph, name, message in (
        (named, "bad.csv", r"bad.csv: no node has the id '8' \(1 unknown\)"),
        (named, "twice.csv", "an id is there twice"),
        (numbers, "word.csv", "no node has the id 'x': ids of 'node' are numbers"),
        (numbers, "large.csv", "no node has the id '99999999999999999999': it is too large"),
        (named, "two.csv", "no column 'id'; it has: a, b"),
        (named, "bare.csv", "the first line is an id itself"),
        (named, "absent.parquet", "absent.parquet: not a Parquet or CSV file"),
    ):
        with pytest.raises(InputError, match=message):
            read_nodes(graph, tmp_path / name)


def test_a_file_without_any_row_is_refused(tmp_path: Path) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]])
    (tmp_path / "pairs.csv").write_text("source,target\n")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "ids.parquet")
    with pytest.raises(
        InputError, match=r"pairs\.csv: has no row under its header .source, target.; add pairs"
    ):
        read_pairs(graph, tmp_path / "pairs.csv", torch.ones(1, dtype=torch.bool))
    with pytest.raises(InputError, match=r"ids\.parquet: has no row under its header"):
        read_nodes(graph, tmp_path / "ids.parquet")


def test_features_of_pairs_are_the_columns_that_those_of_edges_were_made_of(tmp_path: Path) -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], edge_attr=torch.zeros(2, 3))
    asked = torch.ones(1, dtype=torch.bool), ["attr"], {"node edge node": ["trust", "kind=a", "kind=b"]}
    (tmp_path / "pairs.csv").write_text("source,target,trust,kind\n0,2,0.5,b\n2,1,-1,a\n1,0,3,other\n")
    pairs = read_pairs(graph, tmp_path / "pairs.csv", *asked)
    assert pairs.data["attr"].tolist() == [[0.5, 0, 1], [-1, 1, 0], [3, 0, 0]]
    (tmp_path / "none.csv").write_text("source,target,trust\n0,2,0.5\n")
    with pytest.raises(
        InputError, match=r"no column 'kind', which edges have; it has: source, target, trust"
    ):
        read_pairs(graph, tmp_path / "none.csv", *asked)
    (tmp_path / "word.csv").write_text("source,target,trust,kind\n0,2,high,b\n")
    with pytest.raises(InputError, match=r"'trust' must hold a number for each pair"):
        read_pairs(graph, tmp_path / "word.csv", *asked)
