"""What inference leaves: Parquet files of predictions and embeddings by the user's ids, and a note."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from weft.graph.graph import Graph
from weft.pipeline.infer.rows_by_id import pieces_of
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
LEARNED = "_learned/embeddings.parquet"
ROWS = "embeddings.parquet"
"""Where nodes have no predictions of their own, their rows are the table."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Some of the nodes asked for, in their order."""

    nodes: NDArray[np.int64]
    output: Tensor
    """[n, columns]"""
    embedding: Tensor | None
    """[n, width]"""


class Writer:
    """Writes files with one row per node: its type where there are several, its id, what the model gave."""

    def __init__(self, folder: Path, graph: Graph, task: Task, names: list[str] | None = None) -> None:
        self.folder, self.graph, self.task, self.names = folder, graph, task, names
        self.text = any(of_words(graph, kind) for kind in graph.node_types)

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

    def write_learned(self, model: nn.Module) -> None:
        """Write the learned rows of a model, where it has some."""
        import pyarrow as pa
        from pyarrow import parquet

        writer = None
        for nodes, rows in pieces_of(model):
            table = pa.table(self._keys(nodes) | {"embedding": lists(rows)})
            if writer is None:
                (self.folder / LEARNED).parent.mkdir()
                writer = parquet.ParquetWriter(self.folder / LEARNED, table.schema, use_dictionary=False)
            writer.write_table(table)
        if writer is not None:
            writer.close()

    def _tables(self, piece: Scored) -> "dict[str, pa.Table]":
        import pyarrow as pa

        keys, output = self._keys(piece.nodes), piece.output.detach()
        if self.task.over == "pairs":  # what is said of pairs is made of these rows
            return {ROWS: pa.table(keys | {"embedding": lists(output)})}
        tables = {PREDICTIONS: pa.table(keys | self.task.predicted(output, self.names))}
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


def of_words(graph: Graph, kind: str) -> bool:
    """Return whether the user's ids of a node type are texts."""
    return kind in graph.node_ids and graph.node_ids[kind].values.dtype.kind == "U"
