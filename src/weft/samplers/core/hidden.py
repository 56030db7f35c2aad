"""Edges that a batch must not see: not drawn, and not counted by any degree.

A model that is to tell whether an edge is there could read the answer off a degree as well as off a message,
so a batch with hidden edges is that of a graph without them, for every layer.
"""

from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.degrees import edge_destinations, entries_of_rows
from weft.graph.views import EdgeView


class HiddenPairs(NamedTuple):
    """Pairs of nodes that a batch must see no edge between, from src to dst."""

    src: Tensor
    """[n] int64 global."""
    dst: Tensor
    """[n]"""


class Hidden:
    """Some edges of a graph, places in canonical order, and the degrees that the graph has without them."""

    def __init__(self, graph: EdgeView, edges: Any) -> None:
        self.graph = graph
        self.edges = torch.unique(torch.as_tensor(edges).to("cpu", torch.int64))  # [h] rising
        wrong = self.edges[(self.edges < 0) | (self.edges >= graph.num_edges)]
        if wrong.numel():
            raise GraphError(f"hidden: expected places 0 … {graph.num_edges - 1:,}, got {int(wrong[0]):,}")

    @classmethod
    def between(cls, graph: EdgeView, src: Tensor, dst: Tensor) -> "Hidden":
        """Return all edges from src[i] to dst[i]: every parallel copy, of whatever relation."""
        # Only rows that a pair leads to are gone through: a batch hides a thousand pairs of a graph of any
        # size.
        pairs = torch.unique(src * graph.num_nodes + dst)
        indptr, slots = entries_of_rows(graph.indptr, torch.unique(dst))
        targets = torch.unique(dst)[edge_destinations(indptr)]
        pairs_here = graph.indices[slots].long() * graph.num_nodes + targets
        return cls(graph, slots[torch.isin(pairs_here, pairs)])

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the degrees of all nodes without these edges, to be asked for by id."""
        whole = self.graph.degree(direction, relation, weighted)
        nodes, left = self.left(direction, relation, weighted)
        return replaced(whole, nodes, left.to(whole.dtype))

    def left(
        self, direction: Literal["in", "out"], relation: int | None, weighted: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the nodes at these edges, rising, and their degrees without them."""
        nodes = torch.unique(self.src if direction == "out" else self.dst)
        row_of, edges = self.around(direction, nodes)
        kinds, weight = self.graph.edge_type, self.graph.edge_data.get("weight")
        if relation is not None and kinds is not None:
            chosen = kinds[edges] == relation
            row_of, edges = row_of[chosen], edges[chosen]
        weights = weight[edges].double() if weighted and weight is not None else None
        return nodes, torch.bincount(row_of, weights, minlength=nodes.numel())

    def degree_in_relations(self, nodes: Tensor, relation: Tensor) -> Tensor:
        """Return how many edges into each node are left of the relation beside it, [n] on the CPU."""
        kinds, of = self.graph.edge_type, self.graph.num_relations
        assert kinds is not None, "one relation is counted as any other degree"
        some, row_of = torch.unique(nodes.cpu(), return_inverse=True)
        at, edges = self.around("in", some)
        rising = (at * of + kinds[edges]).sort().values
        wanted = row_of * of + relation.cpu()
        return torch.searchsorted(rising, wanted, right=True) - torch.searchsorted(rising, wanted)

    def around(self, direction: Literal["in", "out"], nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges that are left into or out of some nodes, and the place of the node of each."""
        if direction == "in":
            indptr, edges = entries_of_rows(self.graph.indptr, nodes)
        else:
            turned = self.graph.transposed
            indptr, slots = entries_of_rows(turned.indptr, nodes)
            edges = turned.edges[slots].long()
        # Counted anew from the edges that are left, not subtracted: parallel copies and weights are then
        # right, to the last bit, whatever was hidden.
        left = ~torch.isin(edges, self.edges)
        return edge_destinations(indptr)[left], edges[left]

    @cached_property
    def src(self) -> Tensor:
        """[h] int64 the node that each edge leaves."""
        return self.graph.indices[self.edges].long()

    @cached_property
    def dst(self) -> Tensor:
        """[h] int64 the node that each edge leads to."""
        return torch.searchsorted(self.graph.indptr, self.edges, right=True) - 1


def replaced(values: Tensor, nodes: Tensor, others: Tensor) -> Tensor:
    """Return values, one a node, of which those of some nodes, rising, are others; asked for by id."""
    return cast(Tensor, _Replaced(values, nodes, others))


class _Replaced:
    """One value per node, of which some are others."""

    def __init__(self, values: Tensor, nodes: Tensor, others: Tensor) -> None:
        self.values, self.nodes, self.others = values, nodes, others

    def __getitem__(self, ids: Tensor) -> Tensor:
        values = self.values[ids]
        if not self.nodes.numel():
            return values
        slot = torch.searchsorted(self.nodes, ids).clamp(max=self.nodes.numel() - 1)
        return torch.where(self.nodes[slot] == ids, self.others[slot], values)
