"""What inference gives: a row a node, found by the user's own ids."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import FormatError, GraphError
from weft.format import as_path
from weft.graph.graph import Graph
from weft.graph.ids import NodeIds
from weft.registry import require
from weft.stores.base import Store


@dataclass(frozen=True, eq=False)
class Predictions:
    """Outputs of a model in the order of the nodes asked for."""

    rows: Store
    """[n, ...] the outputs, in memory or in a file."""
    nodes: Tensor
    """[n] int64 global ids."""
    ids: dict[str, NDArray[Any]]
    """By node type, the user's ids of the nodes in their order (without any, their numbers)."""

    @classmethod
    def of_graph(cls, graph: Graph, nodes: Tensor, rows: Store) -> "Predictions":
        """Return outputs with the ids that the graph has for the nodes."""
        ids: dict[str, NDArray[Any]] = {}
        for place, kind in enumerate(graph.node_types):
            start, stop = graph.node_offsets[place : place + 2]
            local = (nodes[(nodes >= start) & (nodes < stop)] - start).numpy()
            if len(local):
                ids[kind] = graph.node_ids[kind].values[local] if kind in graph.node_ids else local
        return cls(rows, nodes, ids)

    def __len__(self) -> int:
        return self.nodes.numel()

    def tensor(self) -> Tensor:
        """Return all outputs in memory, [n, ...]."""
        return self.rows[:]

    def of(self, ids: Any, node_type: str | None = None) -> Tensor:
        """Return the outputs of the nodes with these ids, in their order."""
        if node_type is None and len(self.ids) > 1:
            raise GraphError(f"outputs of several types: name one of {', '.join(self.ids)}")
        kind = next(iter(self.ids), "node") if node_type is None else node_type
        if kind not in self.ids:
            raise GraphError(f"no outputs for nodes of type {kind!r}; there are: {', '.join(self.ids)}")
        before = 0
        for known, held in self.ids.items():
            if known == kind:
                return self.rows.gather(torch.from_numpy(before + NodeIds(held).find(ids)))
            before += len(held)
        raise AssertionError("the type was found above")

    def to_parquet(self, path: str | os.PathLike[str], *, chunk: int = 65536) -> None:
        """Write a Parquet file with the columns type, id and output (a list a node), whole or not at all."""
        arrow, parquet = require("pyarrow", "data"), require("pyarrow.parquet", "data")
        target = as_path(path)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        try:
            self._write(arrow, parquet, Path(name), chunk)
            os.replace(name, target)
        except OSError as error:
            raise FormatError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            Path(name).unlink(missing_ok=True)

    def _write(self, arrow: Any, parquet: Any, path: Path, chunk: int) -> None:
        writer, before = None, 0
        for kind, held in self.ids.items():
            for start in range(0, len(held), chunk):
                part = held[start : start + chunk]
                rows = self.rows[before + start : before + start + len(part)].flatten(1)
                flat = arrow.array(rows.float().numpy().ravel())
                output = arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
                types = arrow.array(np.full(len(part), kind))
                shown = part.astype(str) if len(self.ids) > 1 else part  # ids of types may differ in kind
                table = arrow.table({"type": types, "id": arrow.array(shown), "output": output})
                writer = writer or parquet.ParquetWriter(path, table.schema)
                writer.write_table(table)
            before += len(held)
        if writer is not None:
            writer.close()
