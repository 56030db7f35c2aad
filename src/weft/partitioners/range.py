"""Parts as ranges of ids: right where ids already follow the structure, as in crawls and sorted dumps."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, partitioners


@partitioners.add("range")
class RangePartitioner(Partitioner):
    """Cut the ids of each node type into contiguous ranges of about equal edges (or nodes)."""

    isolated = False

    def __init__(self, *, balance: Literal["edges", "nodes"] = "edges", seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.balance = balance

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node; part p has the p-th range of every type."""
        weight = torch.ones(graph.num_nodes, dtype=torch.float64)
        if self.balance == "edges":
            weight += graph.indptr.diff()  # the 1 spreads nodes without edges, which cost something too
        parts = torch.empty(graph.num_nodes, dtype=torch.int32)
        for begin, end in pairwise(graph.node_offsets):
            parts[begin:end] = cut_evenly(weight[begin:end], num_parts)
        return parts


def cut_evenly(weight: Tensor, num_parts: int) -> Tensor:
    """Return the part of each of a row of weights, ascending: a weight goes where its middle falls."""
    if not len(weight):
        return torch.empty(0, dtype=torch.int32)
    ends = weight.cumsum(0)
    middle = (ends - weight / 2) / ends[-1]
    return (middle * num_parts).long().clamp(max=num_parts - 1).int()
