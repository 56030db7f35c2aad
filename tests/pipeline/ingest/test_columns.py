"""Columns as numbers: one-hot, index, lists, times and the odd types of other engines."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import (
    graph_of,
    problems_of,
    write_csv,
    write_parquet,
    write_text,
)

from weft.meaning import read_report


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
