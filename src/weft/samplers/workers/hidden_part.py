"""Edges that a step hides where several workers hold the graph, and the degrees without them.

All workers know the pairs of nodes that a step hides, but only the owners of targets know the edges between
them. They tell the others, since the edges out of a node lie with many.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.graph.degrees import Degrees, RowDegrees, edge_destinations
from weft.graph.views import EdgeView
from weft.samplers.core.hidden import Hidden, HiddenPairs


class HiddenPart:
    """The edges between some pairs of nodes: `edges` are those held here. All members make one together.

    `edges_here` are those that this member holds, `owner` [N] is the member that owns each node.
    """

    def __init__(
        self, edges_here: EdgeView, ends: HiddenPairs, owner: Tensor, group: Group, *, label: Label
    ) -> None:
        self.edges = Hidden.between(edges_here, *ends)
        changed = torch.unique(self.edges.dst)
        row_of, left = self.edges.around("in", changed)
        hidden = _EdgesAtEnd.of(edges_here, self.edges.edges, self.edges.dst)
        self._into = _Change.of(
            edges_here, hidden, _EdgesAtEnd.of(edges_here, left, changed[row_of]), replaces=True
        )
        own = owner[self.edges.dst] == group.rank  # copies of others' edges may be held too
        gone = _EdgesAtEnd.of(edges_here, self.edges.edges[own], self.edges.src[own]).gathered(group, label)
        self._out_of = _Change.of(edges_here, gone, gone, replaces=False)

    def degrees(self, ids: Tensor, whole: Degrees) -> Degrees:
        """Return the degrees `whole` of held nodes ids [n] without these edges.

        Weights of edges into a node are added up anew, as one process does; those of edges out of it, which
        lie with many, are subtracted.
        """
        return Degrees(self._into(whole.into, ids), self._out_of(whole.out_of, ids))


class _EdgesAtEnd(NamedTuple):
    """Some edges at one of their ends."""

    node: Tensor
    kind: Tensor | None
    weight: Tensor | None

    @classmethod
    def of(cls, graph: EdgeView, edges: Tensor, node: Tensor) -> "_EdgesAtEnd":
        kinds, weight = graph.edge_type, graph.edge_data.get("weight")
        return cls(
            node,
            None if kinds is None else kinds[edges].long(),
            None if weight is None else weight[edges].double(),
        )

    def gathered(self, group: Group, label: Label) -> "_EdgesAtEnd":
        """Return those of all members."""
        counts = group.all_gather(torch.tensor([len(self.node)]), label=label).wait().tolist()
        moving = [None if each is None else group.all_gather(each, counts, label=label) for each in self]
        node, kind, weight = (None if each is None else each.wait() for each in moving)
        assert node is not None
        return _EdgesAtEnd(node, kind, weight)


@dataclass(frozen=True, eq=False)
class _EdgeCounts:
    """Edges by key: their number and weight."""

    keys: Tensor
    """Rising."""
    count: Tensor
    weight: Tensor | None

    @classmethod
    def of(cls, changed: Tensor, keys: Tensor, weight: Tensor | None) -> "_EdgeCounts":
        """Return those of the edges `keys`, for the keys that change."""
        changed = torch.unique(changed)
        slot, there = _find(changed, keys)
        slot, size = slot[there], len(changed)
        weights = None if weight is None else torch.bincount(slot, weight[there], minlength=size)
        return cls(changed, torch.bincount(slot, minlength=size).float(), weights)

    def change(
        self, keys: Tensor, count: Tensor, weight: Tensor | None, *, replaces: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return values of keys [n], of which these replace some or are taken from them."""
        if not len(self.keys):
            return count, weight
        slot, there = _find(self.keys, keys)
        count = torch.where(there, self.count[slot] if replaces else count - self.count[slot], count)
        if weight is not None and self.weight is not None:
            other = self.weight[slot] if replaces else weight - self.weight[slot]
            # What rounding leaves where no edge is left is nothing.
            weight = torch.where(there, other, weight) * (count > 0)
        return count, weight


@dataclass(frozen=True, eq=False)
class _Change:
    """How degrees in one direction change, in total and by relation."""

    total: _EdgeCounts
    by_relation: _EdgeCounts | None
    relations: int
    replaces: bool

    @classmethod
    def of(cls, graph: EdgeView, changed: _EdgesAtEnd, counted: _EdgesAtEnd, *, replaces: bool) -> "_Change":
        total, relations = _EdgeCounts.of(changed.node, counted.node, counted.weight), graph.num_relations
        if changed.kind is None or counted.kind is None:
            return cls(total, None, relations, replaces)
        keys, others = changed.node * relations + changed.kind, counted.node * relations + counted.kind
        return cls(total, _EdgeCounts.of(keys, others, counted.weight), relations, replaces)

    def __call__(self, rows: RowDegrees, ids: Tensor) -> RowDegrees:
        count, weight = self.total.change(ids, rows.count, rows.weight, replaces=self.replaces)
        if self.by_relation is None or rows.indptr is None or rows.relation is None:
            return RowDegrees(count, weight, None, None, None, None)
        assert rows.relation_count is not None
        keys = ids[edge_destinations(rows.indptr)] * self.relations + rows.relation
        by_relation = self.by_relation.change(
            keys, rows.relation_count, rows.relation_weight, replaces=self.replaces
        )
        return RowDegrees(count, weight, rows.indptr, rows.relation, *by_relation)


def _find(rising: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return a place of each key among rising ones, and whether it is there."""
    slot = torch.searchsorted(rising, keys).clamp(max=max(len(rising) - 1, 0))
    there = rising[slot] == keys if len(rising) else torch.zeros_like(keys, dtype=torch.bool)
    return slot, there
