"""A partitioned graph for algorithms: each rank holds its rows, reads those of others and shares totals.

An algorithm is written once, for a whole `Graph` or for `Parts`, on `spread` and `total`. Edges into a row
lie where it is owned, in the order that they have in the whole graph, so a row's sum has the same bits;
totals are taken part by part and merged in the order of parts, so that any number of workers gives the same.
"""

from collections.abc import Sequence
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
from weft.graph.parts.partition import read_partition, read_shard
from weft.graph.parts.shard import Shard
from weft.graph.targets import NodeData

_ROWS, _TOTAL = Label("algorithm rows"), Label("algorithm total")


class Parts(NodeData):
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
        self.num_classes, self.multilabel = shard.num_classes, shard.multilabel
        self.target_rows = shard.type_ranges()[shard.target_type]
        rows = len(shard.node_ids) + len(shard.halo_ids)
        self._block = Block(shard.indptr, shard.indices, num_src=rows, edge_data=shard.edge_data)

    @classmethod
    def open(cls, folder: str | PathLike[str], group: Group) -> "Parts":
        """Return what a rank holds of a folder that `weft partition` wrote; nobody reads the whole graph."""
        owners = dealt(read_partition(folder).num_parts, group.size)
        held = [part for part, owner in enumerate(owners) if owner == group.rank]
        return cls(Shard.merge([read_shard(folder, part) for part in held]), group)

    @property
    def target_type(self) -> str:
        """The node type that has labels."""
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


def num_rows(graph: Graph | Parts) -> int:
    """Return how many rows are held here: of a whole graph all."""
    return graph.num_rows if isinstance(graph, Parts) else graph.num_nodes


def spread(graph: Graph | Parts, h: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum of h over the in-neighbours of each row held, times the weight of the edge."""
    if isinstance(graph, Parts):
        h = torch.cat([h, graph.plan.pull(graph.group, h, label=_ROWS).wait()])
    return graph.block().aggregate(h, "sum", weight)


def total(graph: Graph | Parts, values: Tensor) -> float:
    """Return the sum of a float64 value a row over all rows of the graph."""
    if not isinstance(graph, Parts):
        return float(values.sum())
    shard = graph.shard
    sums = values.new_zeros(shard.num_parts).index_add_(0, shard.node_part.long(), values)
    # Each part is summed by the one who holds it, and the zeros of the others change nothing.
    return float(graph.group.all_reduce(sums, label=_TOTAL).wait().sum())
