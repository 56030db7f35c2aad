"""Rows keep their places, whatever their columns are called."""

from pathlib import Path

import pytest
from tables import (
    edges_of,
    graph_of,
    ids_of,
    problems_of,
    write_csv,
    write_parquet,
)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_no_name_of_a_column_changes_which_row_is_which(tmp_path: Path, form: str) -> None:
    """Also names that the engine or weft itself gives to places, files and rows, in any case."""
    ours = [
        "File_Row_Number",
        "file_index",
        "FILENAME",
        "rowid",
        "pos",
        "path",
        "row",
        "column_0",
        "c0",
        "x0",
    ]
    wrong = {column: [3, 2, 1, 0] for column in ours}
    write = write_parquet if form == "parquet" else write_csv
    for place in range(2):
        ids = [f"{letter}{place}" for letter in "abcd"]
        write(tmp_path / f"n{place}.{form}", {"id": ids, "f": [10, 20, 30, 40], **wrong})
        ends = {"src": ids, "dst": ids[1:] + ids[:1], "weight": [1, 2, 3, 4]}
        write(tmp_path / f"e{place}.{form}", {**ends, **wrong})
    sections = {"nodes": {"node": {"features": ["f"]}}, "edges": {"edge": {"weight": "weight"}}}
    tables = f"nodes={tmp_path}/n*.{form}", f"edges={tmp_path}/e*.{form}"
    graph = graph_of(tmp_path / "g", *tables, sections=sections)
    assert ids_of(graph) == ["a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"]
    assert graph.x.flatten().tolist() == [10, 20, 30, 40] * 2
    assert edges_of(graph) == [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)]
    assert graph.edge_data["weight"].tolist() == [4, 1, 2, 3] * 2  # in canonical order
    write(tmp_path / f"n1.{form}", {"id": ["a1", "a0", "c1", "d1"], "f": [10, 20, 30, 40], **wrong})
    (told,) = problems_of(*tables[:1], sections={"nodes": sections["nodes"]}).errors
    assert (told.file, told.row) == (f"{tmp_path}/n1.{form}", 2)
