"""Tables of a small graph, written to files for the tests of the data plane."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from weft.pipeline.ingest.ingestion import ingest
from weft.pipeline.ingest.problems import Problems, parse_fixes
from weft.pipeline.schema import Schema, add_files, parse_schema
from weft.pipeline.validate import validate

PEOPLE = {
    "id": ["007", "8", "ünï", "new\nline"],
    "age": [31, 44, 28, 60],
    "vector": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [2.0, 3.0]],
    "job": ["cook", "smith", "cook", None],
    "split": ["train", "train", "val", None],
}
KNOWS = {"src": ["007", "8", "ünï", "new\nline"], "dst": ["8", "007", "8", "ünï"], "weight": [0.5, 1, 2, 1.5]}


def write_parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write columns as Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def write_csv(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write columns as comma separated values with a header."""
    csv.write_csv(pa.table(dict(columns)), path)
    return path


def write_text(path: Path, text: str | bytes) -> Path:
    """Write a text file byte by byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def schema_of(tables: Sequence[str], sections: Mapping[str, Any] | None = None) -> Schema:
    """Return the schema of tables as on the command line."""
    return add_files(parse_schema(sections or {}, "schema"), tables)


def problems_of(*tables: str, sections: Mapping[str, Any] | None = None, fix: str = "") -> Problems:
    """Return what `weft validate` finds."""
    return validate(schema_of(tables, sections), fixes=parse_fixes([fix]), memory="500MB")[0]


def kinds_of(*tables: str, sections: Mapping[str, Any] | None = None) -> set[str]:
    """Return the kinds of the errors that `weft validate` finds."""
    return {problem.kind for problem in problems_of(*tables, sections=sections).errors}


def graph_of(out: Path, *tables: str, sections: Mapping[str, Any] | None = None, fix: str = "") -> Any:
    """Return the graph that `weft ingest` makes."""
    import weft

    ingest(schema_of(tables, sections), out, fixes=parse_fixes([fix]), memory="500MB")
    return weft.load(out)


def ids_of(graph: Any, kind: str = "node") -> list[Any]:
    """Return the user's ids in row order."""
    return list(graph.node_ids[kind].values.tolist())


def edges_of(graph: Any) -> list[tuple[int, int]]:
    """Return the edges as pairs of rows, in the user's order."""
    return [(int(src), int(dst)) for src, dst in graph.edge_index.T.tolist()]


class small_disk:
    """A small file system in memory, where the one who runs the tests may make one."""

    def __init__(self, path: Path, options: str) -> None:
        self.path, self.options = path, options

    def __enter__(self) -> Path:
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(self.path)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("only the administrator may make a small disk")
        return self.path

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.path)], check=True)


def edge_file(folder: Path, src: int, dst: int) -> Path:
    """Return the Parquet file of a table with one edge."""
    return write_parquet(folder / "one_edge.parquet", {"src": [src], "dst": [dst]})
