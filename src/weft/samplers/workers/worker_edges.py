"""The edges that a worker holds, as samplers read those of a whole graph."""

from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from weft import kernels
from weft.graph.build import without_names
from weft.graph.node_data import NodeData
from weft.graph.parts.shard import Shard


class WorkerEdges(NodeData):
    """The edges that a worker holds, as an `EdgeView`: rows have global numbers, node data are its own."""

    owned: None = None

    def __init__(self, shard: Shard) -> None:
        self.node_types, self.node_offsets = shard.node_types, shard.node_offsets
        self.edge_types, self.num_relations = shard.edge_types, len(shard.edge_types)
        self.num_nodes, self.num_edges = shard.num_nodes, len(shard.indices)
        self.edge_type, self.edge_data = shard.edge_type, shard.edge_data
        self.node_data, self.target_counts = shard.node_data, shard.target_counts
        self.target_rows, self.own_ids = shard.type_ranges()[shard.target_type], shard.node_ids
        self.device = shard.indptr.device
        counts = torch.zeros(shard.num_nodes + 1, dtype=torch.int64)
        counts[shard.node_ids + 1] = shard.indptr.diff()
        self.indptr = counts.cumsum_(0)
        small = shard.num_nodes < 2**31
        self.indices = shard.row_ids[shard.indices.long()].to(torch.int32 if small else torch.int64)
        self._shard = shard

    @property
    def target_type(self) -> str:
        return self._shard.target_type

    @cached_property
    def transposed(self) -> kernels.Transposed:
        """The edges by source."""
        return kernels.transpose_csr(self.indptr, self.indices, self.num_nodes)

    def in_degree(self) -> Tensor:
        """Return the edges into each node in the whole graph, [N]; 0 of those that no edge here touches."""
        return self.degree("in", None, False)

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return degrees in the whole graph, [N]; 0 of nodes that no edge here touches."""
        own = self._shard.degrees[direction, relation, weighted]
        degree = torch.zeros(self.num_nodes, dtype=own.dtype)
        degree[self._shard.row_ids] = own
        return degree

    @property
    def is_plain(self) -> bool:
        """What a whole graph says of its types."""
        return without_names(self.node_types, self.edge_types)

    def summary(self) -> dict[str, Any]:
        """Return counts of the whole graph."""
        return {"num_nodes": self.num_nodes, "num_edges": self._shard.num_edges}
