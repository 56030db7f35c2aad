"""Degrees in the whole graph of the rows that one part holds.

A layer normalises by the degrees of the whole graph, never by those of a shard, so a shard carries them.
Degrees by relation are kept by row, only where they are not zero: a row has few relations, however many the
graph has.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from weft.graph.graph import Graph

Direction = Literal["in", "out"]


@dataclass(frozen=True, eq=False)
class RowDegrees:
    """Degrees of rows in one direction: in total, and by relation where there are several."""

    count: Tensor
    """[rows] float32 number of edges."""
    weight: Tensor | None
    """[rows] float64 summed edge weight, None where edges have none."""
    indptr: Tensor | None
    """[rows + 1] int64: the entries of each row below, None where there is one relation."""
    relation: Tensor | None
    """[entries] int32, ascending in a row."""
    relation_count: Tensor | None
    """[entries] float32."""
    relation_weight: Tensor | None
    """[entries] float64, None where edges have no weight."""

    def rows(self, index: Tensor) -> "RowDegrees":
        """Return the degrees of some rows."""
        weight = None if self.weight is None else self.weight[index]
        if self.indptr is None or self.relation is None or self.relation_count is None:
            return RowDegrees(self.count[index], weight, None, None, None, None)
        indptr, where = entries_of_rows(self.indptr, index)
        by_weight = None if self.relation_weight is None else self.relation_weight[where]
        relation, by_count = self.relation[where], self.relation_count[where]
        return RowDegrees(self.count[index], weight, indptr, relation, by_count, by_weight)

    def get(self, relation: int | None, weighted: bool) -> Tensor:
        """Return the degrees [rows], float32 or of weights float64, of one relation or of all."""
        total = self.weight if weighted and self.weight is not None else self.count
        if relation is None or self.indptr is None or self.relation is None:
            return total
        chosen = (self.relation == relation).nonzero().flatten()
        values = (
            self.relation_weight if weighted and self.relation_weight is not None else self.relation_count
        )
        assert values is not None
        rows = torch.searchsorted(self.indptr, chosen, right=True) - 1
        return torch.zeros_like(total).index_put_((rows,), values[chosen])


@dataclass(frozen=True, eq=False)
class Degrees:
    """Degrees of rows in both directions: `degrees["in", relation, weighted]` is [rows]."""

    into: RowDegrees
    out_of: RowDegrees

    def __getitem__(self, key: tuple[Direction, int | None, bool]) -> Tensor:
        direction, relation, weighted = key
        return (self.into if direction == "in" else self.out_of).get(relation, weighted)

    def rows(self, index: Tensor) -> "Degrees":
        """Return the degrees of some rows."""
        return Degrees(self.into.rows(index), self.out_of.rows(index))

    def followed_by(self, other: "Degrees") -> "Degrees":
        """Return the degrees of these rows, then of the others."""
        return Degrees(_concatenate(self.into, other.into), _concatenate(self.out_of, other.out_of))

    @classmethod
    def of(cls, graph: Graph) -> "Degrees":
        """Return the degrees of every node of a graph."""
        return cls(_whole(graph, "in"), _whole(graph, "out"))


def _concatenate(first: RowDegrees, second: RowDegrees) -> RowDegrees:
    """Return the degrees of the rows of the first, then of the second."""
    indptr = None
    if first.indptr is not None and second.indptr is not None:
        indptr = torch.cat([first.indptr, second.indptr[1:] + first.indptr[-1]])
    joined = (
        None if a is None or b is None else torch.cat([a, b])
        for a, b in (
            (first.relation, second.relation),
            (first.relation_count, second.relation_count),
            (first.relation_weight, second.relation_weight),
        )
    )
    weight = (
        None if first.weight is None or second.weight is None else torch.cat([first.weight, second.weight])
    )
    return RowDegrees(torch.cat([first.count, second.count]), weight, indptr, *joined)


def entries_of_rows(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return row pointers of the chosen rows and the place of each of their entries, both int64."""
    start = indptr[rows]
    counts = indptr[rows + 1] - start
    chosen = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    total = int(chosen[-1])
    shift = torch.repeat_interleave(start - chosen[:-1], counts, output_size=total)
    return chosen, shift + torch.arange(total, device=indptr.device)


def _whole(graph: Graph, direction: Direction) -> RowDegrees:
    weighted = "weight" in graph.edge_data
    count = graph.degree(direction, None, False)
    weight = graph.degree(direction, None, True) if weighted else None
    kinds = graph.edge_type
    if kinds is None:
        return RowDegrees(count, weight, None, None, None, None)
    ends = graph.indices.long() if direction == "out" else edge_destinations(graph.indptr)
    keys, place = torch.unique(ends * graph.num_relations + kinds, return_inverse=True)
    row, relation = keys // graph.num_relations, (keys % graph.num_relations).int()
    indptr = torch.searchsorted(row, torch.arange(graph.num_nodes + 1))
    # bincount adds in the order of edges, in float64, as Graph.degree does: the same bits.
    by_count = torch.bincount(place, minlength=len(keys)).float()
    by_weight = None
    if weighted:
        by_weight = torch.bincount(place, graph.edge_data["weight"].double(), minlength=len(keys)).double()
    return RowDegrees(count, weight, indptr, relation, by_count, by_weight)


def edge_destinations(indptr: Tensor) -> Tensor:
    """Return the destination row of each edge, int64."""
    return torch.repeat_interleave(indptr[1:] - indptr[:-1], output_size=int(indptr[-1]))
