"""Algorithms by name, and what they are written on: a graph whole, or in parts on the ranks of a group.

Each rank holds its rows, reads those of others and shares totals. An algorithm is a function `(graph, *, …)`
under `@algorithms.add("name")` that returns one number per row held, or the scores of classes [n, C] of the
rows of the labelled type; `weft algorithm NAME` runs it, and what of its options is no tensor is a key of
--set.

It is written once, for a whole `Graph` or for `GraphParts`, on `spread` and `total`. Edges into a row
lie where it is owned, in the order that they have in the whole graph, so a row's sum has the same bits;
totals are taken part by part and merged in the order of parts, so that any number of workers gives the same.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.comm.plan import spread as dealt
from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.node_data import NodeData
from weft.graph.parts.partition import read_partition, read_shard
from weft.graph.parts.shard import Shard
from weft.registry import Registry

algorithms: Registry[Callable[..., Tensor]] = Registry("algorithm", "weft.algorithms")
_ROWS, _TOTAL = Label("algorithm rows"), Label("algorithm total")


class GraphParts(NodeData):
    """The rows of one rank, under the names that a whole `Graph` has; all ranks make the same calls.

    `node_ids` are the numbers of its rows in the whole graph, ascending.
    """

    def __init__(self, shard: Shard, group: Group, *, part_rank: Sequence[int] | None = None) -> None:
        if shard.cuts != "nodes":
            raise GraphError("algorithms need parts of nodes; these cut edges: use another partitioner")
        self.shard, self.group = shard, group
        self.plan = HaloPlan.make(shard, group, part_rank)
        self.node_ids = shard.node_ids
        self.num_nodes, self.device = shard.num_nodes, shard.node_ids.device
        self.node_types, self.node_data = shard.node_types, shard.node_data
        self.target_counts = shard.target_counts
        self.target_rows = shard.type_ranges()[shard.target_type]
        rows = len(shard.node_ids) + len(shard.halo_ids)
        self._block = Block(shard.indptr, shard.indices, num_src=rows, edge_data=shard.edge_data)

    @classmethod
    def open(cls, folder: str | PathLike[str], group: Group) -> "GraphParts":
        """Return what a rank holds of a folder that `weft partition` wrote; nobody reads the whole graph."""
        owners = dealt(read_partition(folder).num_parts, group.size)
        held = [part for part, owner in enumerate(owners) if owner == group.rank]
        return cls(Shard.merge([read_shard(folder, part) for part in held]), group)

    @property
    def target_type(self) -> str:
        return self.shard.target_type

    @property
    def num_rows(self) -> int:
        """Rows that this rank holds."""
        return len(self.node_ids)

    def block(self) -> Block:
        """Return the edges into the rows of this rank; their sources are these rows and the halo."""
        return self._block

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the degree in the whole graph of each row of this rank."""
        return self.shard.degree(direction, relation, weighted)[: self.num_rows]


def num_rows(graph: Graph | GraphParts) -> int:
    """Return how many rows are held here: of a whole graph all."""
    return graph.num_rows if isinstance(graph, GraphParts) else graph.num_nodes


def spread(graph: Graph | GraphParts, h: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum of h over the in-neighbours of each row held, times the weight of the edge."""
    if isinstance(graph, GraphParts):
        h = torch.cat([h, graph.plan.pull(graph.group, h, label=_ROWS).wait()])
    return graph.block().aggregate(h, "sum", weight)


def total(graph: Graph | GraphParts, values: Tensor) -> float:
    """Return the sum over all rows of the graph of one float64 value per row."""
    if not isinstance(graph, GraphParts):
        return float(values.sum())
    shard = graph.shard
    sums = values.new_zeros(shard.num_parts).index_add_(0, shard.node_part.long(), values)
    # Each part is summed by the one who holds it, and the zeros of the others change nothing.
    return float(graph.group.all_reduce(sums, label=_TOTAL).wait().sum())
