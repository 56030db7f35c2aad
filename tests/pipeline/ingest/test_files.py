"""The files of a table: their order, their columns in any order, text that is not UTF-8."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tables import (
    KNOWS,
    PEOPLE,
    edges_of,
    graph_of,
    ids_of,
    problems_of,
    write_parquet,
    write_text,
)

from weft.errors import FormatError
from weft.pipeline.ingest.files import open_files
from weft.pipeline.ingest.problems import Problems


def test_csv_and_parquet_of_the_same_tables_give_the_same_graph(tmp_path: Path) -> None:
    people = {key: PEOPLE[key] for key in ("id", "age")}
    write_parquet(tmp_path / "people.parquet", people)
    write_parquet(tmp_path / "knows.parquet", KNOWS)
    lines = [f'"{key}",{age}\r\n' for key, age in zip(*people.values())]
    write_text(tmp_path / "people.csv", "\ufeffid,age\r\n" + "".join(lines))
    rows = [f'"{src}"\t"{dst}"\t{weight}\n' for src, dst, weight in zip(*KNOWS.values())]
    write_text(tmp_path / "knows.tsv.gz", gzip.compress(("src\tdst\tweight\n" + "".join(rows)).encode()))
    one = graph_of(tmp_path / "a", f"nodes={tmp_path}/people.parquet", f"edges={tmp_path}/knows.parquet")
    two = graph_of(tmp_path / "b", f"nodes={tmp_path}/people.csv", f"edges={tmp_path}/knows.tsv.gz")
    assert ids_of(one) == ids_of(two) == PEOPLE["id"]
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.edge_data["weight"], two.edge_data["weight"])


def test_many_files_keep_their_order_across_patterns_and_folders(tmp_path: Path) -> None:
    for part in range(3):
        rows = range(part * 1000, (part + 1) * 1000)
        write_parquet(
            tmp_path / f"n/{part}.parquet", {"id": [f"u{row}" for row in rows], "f": list(map(float, rows))}
        )
        write_text(
            tmp_path / f"e/{part}.csv", "src,dst\n" + "".join(f"u{row},u{2999 - row}\n" for row in rows)
        )
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n", f"edges={tmp_path}/e/*.csv")
    assert ids_of(graph) == [f"u{row}" for row in range(3000)]
    assert graph.x[:, 0].tolist() == list(range(3000))
    assert edges_of(graph) == [(row, 2999 - row) for row in range(3000)]


def test_files_with_columns_in_another_order_keep_the_order_of_rows(tmp_path: Path) -> None:
    size = 150_000
    for part in range(3):
        ids = np.arange(part * size, (part + 1) * size)
        columns = {"id": pa.array(ids), "f": pa.array(ids.astype(np.float32))}
        table = pa.table(dict(reversed(columns.items())) if part == 1 else columns)
        (tmp_path / "n").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / f"n/{part}.parquet", row_group_size=20_000)
    edges = write_parquet(tmp_path / "e.parquet", {"src": [3 * size - 1], "dst": [size]})
    graph = graph_of(tmp_path / "g", f"nodes={tmp_path}/n", f"edges={edges}")
    assert torch.equal(graph.x[:, 0], torch.arange(3 * size, dtype=torch.float32))
    assert np.array_equal(graph.node_ids["node"].values, np.arange(3 * size))
    assert edges_of(graph) == [(3 * size - 1, size)]


def test_a_text_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    nodes = write_text(tmp_path / "n.csv", b"id,age,label\na,1,x\nb,2,caf\xe9\n")
    edges = write_text(tmp_path / "e.csv", "src,dst\na,b\n")
    with pytest.raises(FormatError, match=r"n\.csv: line 3 is not UTF-8; save the file as UTF-8"):
        graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}")


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    (told,) = problems_of(f"nodes={tmp_path}/nope.csv").errors
    assert told.line() == f"{tmp_path}/nope.csv: no such file"


@pytest.mark.parametrize("mark", [",", "\t"])
def test_header_of_many_columns_is_a_header(tmp_path: Path, mark: str) -> None:
    names = [f"column{number}" for number in range(15_000)]  # more characters than one field may have
    write_text(tmp_path / "wide.csv", mark.join(names) + "\n" + mark.join(["1"] * len(names)) + "\n")
    problems = Problems()
    files = open_files("nodes", [str(tmp_path / "wide.csv")], problems)
    assert [list(file.columns) for file in files] == [names]
