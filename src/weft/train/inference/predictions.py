"""What inference gives: one row per node, found by the user's own ids."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.ids import NodeIds
from weft.graph.source import RowSource
from weft.registry import require
from weft.stores.base import Store
from weft.tasks.prediction_tables import write_tables


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
        for index, kind in enumerate(graph.node_types):
            start, stop = graph.node_offsets[index : index + 2]
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
        for known, known_ids in self.ids.items():
            if known == kind:
                return self.rows.gather(torch.from_numpy(before + NodeIds(known_ids).find(ids)))
            before += len(known_ids)
        raise AssertionError("the type was found above")

    def to_parquet(self, path: str | os.PathLike[str], *, chunk: int = 65536) -> None:
        """Write a Parquet file of the columns type, id and output (a list per node), whole or not at all."""
        write_tables(path, self._tables(require("pyarrow", "data"), chunk))

    def _tables(self, arrow: Any, chunk: int) -> Iterator[dict[str, Any]]:
        before = 0
        for kind, ids in (self.ids or {"node": np.zeros(0, dtype=np.int64)}).items():
            for start in range(0, max(1, len(ids)), chunk):
                part = ids[start : start + chunk]
                rows = self.rows[before + start : before + start + len(part)].flatten(1)
                flat = arrow.array((rows if rows.dtype.itemsize > 4 else rows.float()).numpy().ravel())
                output = arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
                shown = part.astype(str) if len(self.ids) > 1 else part  # ids of types may differ in kind
                yield {"type": np.full(len(part), kind), "id": shown, "output": output}
            before += len(ids)


class ByNode(RowSource):
    """Rows by global id, of which only some nodes have one."""

    def __init__(self, rows: Store, nodes: Tensor, num_nodes: int) -> None:
        """Hold the rows of nodes, which are rising ids."""
        self.rows, self.nodes = rows, nodes
        self.shape, self.dtype = torch.Size((num_nodes, *rows.shape[1:])), rows.dtype
        self.device = torch.device("cpu")

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of these nodes, in their order."""
        return self.rows.gather(torch.searchsorted(self.nodes, ids))
