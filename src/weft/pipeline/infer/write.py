"""What inference leaves: Parquet files of predictions and embeddings by the user's ids, and a note."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import FormatError, GraphError
from weft.format import as_path
from weft.graph.graph import Graph
from weft.graph.ids import NodeIds
from weft.registry import require
from weft.tasks.base import Task
from weft.tasks.predicted import lists

if TYPE_CHECKING:
    import pyarrow as pa

# Readers of a folder of Parquet files (Spark, pyarrow …) skip names that begin so.
NOTE = "_infer.json"
OLD_NOTE = "infer.json"
"""The name of the note of weft before."""
PREDICTIONS = "predictions.parquet"
# Other columns: who reads the folder as one table must not meet them.
EMBEDDINGS = "_embeddings/embeddings.parquet"
ROWS = "embeddings.parquet"
"""Where nodes have no predictions of their own, their rows are the table."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Some of the nodes asked for, in their order."""

    nodes: NDArray[np.int64]
    output: Tensor
    """[n, classes]"""
    embedding: Tensor | None
    """[n, width]"""


class Writer:
    """Writes files with a row a node: its type where there are several, its id, and what the model gave."""

    def __init__(self, folder: Path, graph: Graph, task: Task, classes: list[str] | None = None) -> None:
        self.folder, self.graph, self.task, self.classes = folder, graph, task, classes
        self.text = any(_of_words(graph, kind) for kind in graph.node_types)

    def write(self, pieces: Iterator[Scored], tell: Callable[[int], None] = lambda _: None) -> int:
        """Write all pieces and return how many rows there were; `tell` is told after each."""
        parquet = require("pyarrow.parquet", "data")
        writers: dict[str, Any] = {}
        rows = 0
        try:
            for piece in pieces:
                for name, table in self._tables(piece).items():
                    if name not in writers:
                        # numbers that differ in nearly every row: a dictionary of them only costs
                        written = {"use_dictionary": ["type"] if "type" in table.schema.names else False}
                        (self.folder / name).parent.mkdir(exist_ok=True)
                        writers[name] = parquet.ParquetWriter(self.folder / name, table.schema, **written)
                    writers[name].write_table(table)
                rows += len(piece.nodes)
                tell(rows)
        finally:
            for writer in writers.values():
                writer.close()
        return rows

    def _tables(self, piece: Scored) -> "dict[str, pa.Table]":
        import pyarrow as pa

        keys, output = self._keys(piece.nodes), piece.output.detach()
        if self.task.over == "pairs":  # what is said of pairs is made of these rows
            return {ROWS: pa.table(keys | {"embedding": lists(output)})}
        tables = {PREDICTIONS: pa.table(keys | self.task.predicted(output, self.classes))}
        if piece.embedding is not None:
            tables[EMBEDDINGS] = pa.table(keys | {"embedding": lists(piece.embedding.detach())})
        return tables

    def _keys(self, nodes: NDArray[np.int64]) -> dict[str, Any]:
        """Return the columns that say which nodes these are."""
        import pyarrow as pa

        offsets = np.array(self.graph.node_offsets)
        kinds = np.searchsorted(offsets, nodes, side="right") - 1
        local = nodes - offsets[kinds]
        parts = [pa.array([], pa.string() if self.text else pa.int64())]
        for place in np.unique(kinds):
            known = self.graph.node_ids.get(self.graph.node_types[place])
            rows = local[kinds == place]
            ids = rows if known is None else known.values[rows]
            parts.append(pa.array(ids.astype(str) if self.text else ids))
        back = np.empty(len(nodes), dtype=np.int64)
        back[np.argsort(kinds, kind="stable")] = np.arange(len(nodes))
        held = pa.concat_arrays(parts).take(pa.array(back))
        if len(self.graph.node_types) == 1:
            return {"id": held}
        names = pa.array(self.graph.node_types)
        return {"type": pa.DictionaryArray.from_arrays(pa.array(kinds), names).cast(pa.string()), "id": held}


def write_note(folder: Path, told: dict[str, Any]) -> None:
    """Write what was done beside the files."""
    (folder / NOTE).write_text(json.dumps(told, indent=1) + "\n")


def asked_nodes(graph: Graph, path: str | Path | None) -> Tensor:
    """Return the global ids of the nodes that a file of the user's ids names; without one, of the targets.

    The file is Parquet or CSV with a column `id` (or one column) and, where the graph has several node
    types, `type`. Without labels in the graph there is no target type: then all nodes are meant.
    """
    if path is None:
        labelled = any("y" in data for data in graph.node_data.values())
        meant = graph.target_rows if labelled else slice(0, graph.num_nodes)
        return torch.arange(meant.start, meant.stop)
    table = _read_ids(as_path(path))
    if "id" not in table.column_names and _is_an_id(graph, table.column_names[0], path):
        raise FormatError(f"{path}: the first line is an id itself; put a line with the word id before it")
    ids = table.column("id" if "id" in table.column_names else 0)
    kinds = table.column("type").to_pylist() if "type" in table.column_names else None
    if kinds is None and len(graph.node_types) > 1:
        kinds = [graph.target_type] * len(ids)
    found = np.empty(len(ids), dtype=np.int64)
    places = np.array(kinds if kinds is not None else [graph.node_types[0]] * len(ids))
    for kind in sorted(set(places.tolist())):
        rows = np.flatnonzero(places == kind)
        found[rows] = _find(graph, kind, ids.take(rows), path) + graph.rows_of_type(kind).start
    wanted = torch.from_numpy(found)
    if len(np.unique(found)) < len(found):
        raise GraphError(f"{path}: an id is there twice; ask for each node once")
    # Rows of a batch are sorted by type.
    return wanted if len(graph.node_types) == 1 else wanted.sort().values


def _is_an_id(graph: Graph, word: str, path: Any) -> bool:
    """Return whether a word, given as the name of a column, is the id of a node."""
    import pyarrow as pa

    for kind in graph.node_types:
        try:
            _find(graph, kind, pa.array([word]), path)
        except GraphError:
            continue
        return True
    return False


def _find(graph: Graph, kind: str, ids: Any, path: Any) -> NDArray[np.int64]:
    import pyarrow as pa

    words = _of_words(graph, kind)
    try:
        values = ids.cast(pa.string() if words else pa.int64())
    except pa.ArrowInvalid:
        listed = ids.drop_null().to_pylist()
        odd = next((value for value in listed if not re.fullmatch("-?[0-9]+", str(value))), None)
        why = f"ids of {kind!r} are numbers"
        if odd is None:
            odd, why = max(listed, key=lambda value: abs(int(value))), "it is too large"
        raise GraphError(f"{path}: no node has the id {odd!r}: {why}") from None
    if values.null_count:
        raise GraphError(f"{path}: {values.null_count:,} ids are missing")
    listed = values.to_pylist() if words else values.to_numpy()
    if kind in graph.node_ids:
        try:
            return graph.node_ids[kind].find(listed)
        except GraphError as error:
            raise GraphError(f"{path}: {error}") from None
    rows = graph.rows_of_type(kind)
    return NodeIds(np.arange(rows.stop - rows.start)).find(listed)


def _of_words(graph: Graph, kind: str) -> bool:
    return kind in graph.node_ids and graph.node_ids[kind].values.dtype.kind == "U"


def _read_ids(path: Path) -> "pa.Table":
    """Return the table of a Parquet or CSV file; ids in text stay as they are written."""
    arrow = require("pyarrow", "data")
    try:
        if path.suffix in (".csv", ".txt", ".tsv"):
            csv = require("pyarrow.csv", "data")
            parsing = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
            head = csv.open_csv(path, parse_options=parsing).schema.names
            texts = csv.ConvertOptions(
                column_types=dict.fromkeys(head, arrow.string()), strings_can_be_null=False
            )
            table = csv.read_csv(path, parse_options=parsing, convert_options=texts)
        else:
            table = require("pyarrow.parquet", "data").read_table(path)
    except (arrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{path}: not a Parquet or CSV file of ids ({reason})") from None
    if "id" not in table.column_names and table.num_columns != 1:
        raise FormatError(f"{path}: no column 'id'; it has: {', '.join(table.column_names)}")
    return table
