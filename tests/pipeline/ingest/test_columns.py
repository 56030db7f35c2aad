"""Columns as numbers: one-hot, index, lists, times and the odd types of other engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tables import (
    graph_of,
    problems_of,
    write_csv,
    write_parquet,
    write_text,
)

from weft.errors import RecipeError
from weft.meaning import read_report
from weft.pipeline.engines.duckdb import DuckDB


def test_categories_times_and_lists_in_text(tmp_path: Path) -> None:
    write_text(
        tmp_path / "n.csv",
        'id,city,color,v,y\n1,Rome,red,"[1, 2]",3\n2,,blue,"[3,4]",-1\n3,Oslo,,"[5,6]",7\n',
    )
    write_text(tmp_path / "e.csv", "a;b;at\n1;2;2020-01-01\n3;2;1970-01-01 00:00:01\n")
    sections = {
        "nodes": {
            "node": {
                "features": [
                    {"column": "city", "encode": "one-hot"},
                    {"column": "color", "encode": "index"},
                    {"column": "v", "encode": "list"},
                ],
                "label": "y",
            }
        },
        "edges": {"edge": {"time": "at"}},
    }
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n.csv", f"edges={tmp_path}/e.csv", sections=sections)
    assert graph.x.tolist() == [[0, 1, 1, 1, 2], [0, 0, 0, 3, 4], [1, 0, 2, 5, 6]]
    assert graph.y.tolist() == [0, -1, 1]
    assert graph.edge_data["time"].tolist() == [1577836800 * 10**6, 10**6]
    assert read_report(tmp_path / "g")["classes"] == {"node": ["3", "7"]}


def test_parquet_of_another_engine_with_odd_types(tmp_path: Path) -> None:
    """Dictionaries, small integers, booleans and fixed lists as other tools write them."""
    table = pa.table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "small": pa.array([1, 2], pa.int8()),
            "yes": pa.array([True, False]),
            "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            "half": pa.array(np.array([0.5, 2], np.float16)),
        }
    )
    pq.write_table(table, tmp_path / "n.parquet")
    write_parquet(tmp_path / "e.parquet", {"src": ["a"], "dst": ["b"]})
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet")
    assert graph.x.tolist() == [[1, 1, 1, 2, 0.5], [2, 0, 3, 4, 2]]
    assert not problems_of(f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet").errors


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("weight", ["0.5", "heavy"]),
        ("weight", ["1", "2", "heavy"]),
        ("time", ["3", "late"]),
        ("time", ["2.5", "1.5", "late"]),
        ("time", ["2024-01-02", "2024-01-03", "soon"]),
    ],
)
def test_a_wrong_weight_or_time_is_told_with_its_row(tmp_path: Path, column: str, values: list[str]) -> None:
    nodes = write_csv(tmp_path / "n.csv", {"id": ["a", "b"]})
    ends = {"src": ["a"] * len(values), "dst": ["b"] * len(values)}
    edges = write_csv(tmp_path / "e.csv", {**ends, column: values})
    found = problems_of(f"nodes={nodes}", f"edges={edges}")
    (told,) = found.errors
    assert (told.column, told.row, told.value) == (column, len(values), values[-1])
    assert not [problem for problem in found.found if problem.kind == "left-out"]


def halves(*shape: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(0).standard_normal(shape).astype(np.float16)


def test_features_in_half_precision_stay_so_value_for_value(tmp_path: Path) -> None:
    x, attr = halves(3, 4), halves(2)
    flat = pa.array(x.ravel())
    nodes = {"id": [1, 2, 3], "v": pa.FixedSizeListArray.from_arrays(flat, 4), "h": pa.array(x[:, 0])}
    write_parquet(tmp_path / "n.parquet", nodes)
    write_parquet(tmp_path / "e.parquet", {"src": [1, 2], "dst": [2, 3], "a": pa.array(attr)})
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n.parquet", f"edges={tmp_path}/e.parquet")
    assert graph.x.dtype == torch.float16
    assert np.array_equal(graph.x.numpy(), np.concatenate([x, x[:, :1]], axis=1))
    assert graph.edge_data["attr"].dtype == torch.float16
    assert graph.edge_data["attr"].flatten().tolist() == attr.tolist()


@pytest.mark.parametrize("wide", ["a column", "a file"])
def test_half_precision_beside_more_digits_is_float32(tmp_path: Path, wide: str) -> None:
    """Nothing is rounded: the columns of a matrix have the type of the widest, in all files."""
    x = halves(2)
    first = {"id": [1, 2], "h": pa.array(x)}
    second = {"id": [3, 4], "h": pa.array(np.array([0.1, 1e-9], np.float32) if wide == "a file" else x)}
    for table in (first, second):
        if wide == "a column":
            table["w"] = pa.array([0.1, 1e9], pa.float32())
    paths = [
        write_parquet(tmp_path / f"{index}.parquet", table) for index, table in enumerate((first, second))
    ]
    edges = write_parquet(tmp_path / "e.parquet", {"src": [1], "dst": [2]})
    graph = graph_of(tmp_path / "g", *(f"nodes={path}" for path in paths), f"edges={edges}")
    assert graph.x.dtype == torch.float32
    assert graph.x[:2, 0].tolist() == x.tolist()
    last = second["h" if wide == "a file" else "w"].to_pylist()
    assert graph.x[2:, -1].tolist() == last


def test_missing_numbers_in_half_precision_are_told_or_filled(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [1, 2], "h": pa.array([None, 0.5], pa.float16())})
    edges = write_parquet(tmp_path / "e.parquet", {"src": [1], "dst": [2]})
    assert [problem.kind for problem in problems_of(f"nodes={nodes}", f"edges={edges}").errors] == [
        "not-finite"
    ]
    graph = graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}", fix="fill-missing")
    assert (graph.x.dtype, graph.x.tolist()) == (torch.float16, [[0.0], [0.5]])


def test_an_engine_that_does_not_read_half_precision_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DuckDB, "reads_halves", False)
    nodes = write_parquet(tmp_path / "n.parquet", {"id": [1, 2], "h": pa.array(halves(2))})
    edges = write_parquet(tmp_path / "e.parquet", {"src": [1], "dst": [2]})
    with pytest.raises(RecipeError, match=r"n\.parquet: 'h' is float16, which this engine does not read"):
        graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}")
