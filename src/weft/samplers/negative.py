"""Negatives: nodes that an edge might have led to and does not, drawn by counters.

The negatives of an edge are a function of (seed, epoch, edge): the same in any batch, in one process or many.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import Stream, draw_lanes, fold, row_keys
from weft.errors import GraphError, InputError
from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph

Ints = NDArray[np.int64]
_ROUNDS = 8  # draws of one negative before the next free node is looked for


class NegativeSampler:
    """Draw `count` targets for each source: uniform over nodes, by in-degree^0.75 ("degree"), or by `weight`.

    `weight` [N] is a number a node; one of weight 0 is never drawn. With `condition` [N], a whole number a
    node, negatives have that of the edge's own target: other goods of the same category, say. (Both are
    AliGraph's.) `exclude` leaves out targets that the source has an edge to, and the source itself. Targets
    are of the type of the edge's own target where there are several node types.

    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]])
    >>> NegativeSampler(graph, 1).sample(torch.tensor([0, 1, 2])).tolist()    # the one node left
    [[1], [2], [0]]
    """

    def __init__(
        self,
        graph: Graph,
        count: int = 1,
        *,
        by: Literal["uniform", "degree", "weight"] = "uniform",
        weight: Any = None,
        condition: Any = None,
        exclude: bool = True,
        seed: int = 0,
    ) -> None:
        if by not in ("uniform", "degree", "weight"):
            raise InputError(f"by must be 'uniform', 'degree' or 'weight', got {by!r}")
        if (by == "weight") is (weight is None):
            raise InputError("weight, a number a node, goes with by='weight'")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"count must be a whole number of at least 1, got {count!r}")
        self.graph, self.count, self.by, self.exclude, self.seed = graph, count, by, exclude, seed
        self.edge_dst = edge_destinations(graph.indptr)  # [E] of canonical edges
        self._known = _pairs(graph, self.edge_dst) if exclude else None
        self._weight = self._weights(weight)  # [N]
        self._group = self._groups(condition)  # [N] of which negatives of a target are drawn
        self._order = np.argsort(self._group, kind="stable")  # nodes, those of a group side by side
        self._sum = np.concatenate([[0.0], np.cumsum(self._weight[self._order])])

    def sample(self, edges: Tensor, epoch: int = 0) -> Tensor:
        """Return targets [n, count] that are none of the edges' sources' own; edges by canonical place."""
        edges = edges.long()
        sources = self.graph.indices[edges].long()
        return self.draw(edges, sources, self.edge_dst[edges], epoch=epoch)

    def draw(self, keys: Tensor, sources: Tensor, targets: Tensor, *, epoch: int = 0) -> Tensor:
        """Return targets [n, count] for sources; `keys` [n] are what the draws are told apart by."""
        rows = row_keys(fold(self.seed, Stream.NEGATIVE, epoch), keys.numpy())
        low, high = self._range(targets.numpy())
        pairs = np.repeat(sources.numpy(), self.count)
        place = np.arange(len(pairs))
        drawn = self._draw(np.repeat(rows, self.count), place % self.count, low, high)
        taken = place[self._taken(pairs, drawn)]
        for turn in range(1, _ROUNDS):
            lanes = taken % self.count + turn * self.count
            drawn[taken] = self._draw(rows[taken // self.count], lanes, low[taken], high[taken])
            taken = taken[self._taken(pairs[taken], drawn[taken])]
        for one in taken.tolist():
            drawn[one] = self._next_free(pairs[one], drawn[one], low[one], high[one])
        return torch.from_numpy(drawn.reshape(-1, self.count))

    def _weights(self, weight: Any) -> NDArray[np.float64]:
        if self.by == "uniform":
            return np.ones(self.graph.num_nodes)
        if self.by == "degree":
            powers: NDArray[np.float64] = self.graph.in_degree().double().pow(0.75).numpy()
            return powers
        given: NDArray[np.float64] = _row_a_node(self.graph, weight, "weight").double().numpy()
        if not (np.isfinite(given) & (given >= 0)).all():
            raise GraphError("weight: expected finite numbers of at least 0")
        return given

    def _groups(self, condition: Any) -> Ints:
        """Return a number a node: of its type and, where given, its condition."""
        kinds = np.repeat(np.arange(len(self.graph.node_types)), np.diff(self.graph.node_offsets))
        if condition is None:
            return kinds
        given = _row_a_node(self.graph, condition, "condition")
        if given.is_floating_point():
            raise GraphError(f"condition: expected a whole number a node, got {given.dtype}")
        pairs = np.stack([kinds, given.long().numpy()], 1)
        groups: Ints = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        return groups

    def _range(self, targets: Ints) -> tuple[Ints, Ints]:
        """Return where the group of each target begins and ends in the order of groups, for each negative."""
        ordered, group = self._group[self._order], np.repeat(self._group[targets], self.count)
        low, high = np.searchsorted(ordered, group), np.searchsorted(ordered, group, side="right")
        empty = self._sum[high] <= self._sum[low]
        if empty.any():
            target = np.repeat(targets, self.count)[empty][0]
            raise GraphError(f"weight: all nodes that could stand for node {target} weigh nothing")
        return low, high

    def _draw(self, rows: NDArray[np.uint64], lanes: Ints, low: Ints, high: Ints) -> Ints:
        bits = draw_lanes(rows, 2 * lanes).astype(np.uint64) << np.uint64(32)
        bits |= draw_lanes(rows, 2 * lanes + 1).astype(np.uint64)
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        first, last = self._sum[low], self._sum[high]
        found = np.searchsorted(self._sum, first + share * (last - first), side="right") - 1
        nodes: Ints = self._order[np.clip(found, low, high - 1)].astype(np.int64)
        return nodes

    def _taken(self, sources: Ints, targets: Ints) -> NDArray[np.bool_]:
        if self._known is None:
            return np.zeros(len(sources), dtype=bool)
        wanted = sources * self.graph.num_nodes + targets
        place = np.searchsorted(self._known, wanted)
        found = np.zeros(len(wanted), dtype=bool)
        inside = place < len(self._known)
        found[inside] = self._known[place[inside]] == wanted[inside]
        result: NDArray[np.bool_] = found | (sources == targets)
        return result

    def _next_free(self, source: int, drawn: int, low: int, high: int) -> int:
        """Return the first node of the group from the drawn one on that the source has no edge to."""
        group = self._order[low:high]
        order = np.roll(group, -int(np.flatnonzero(group == drawn)[0]))
        order = order[self._weight[order] > 0]
        free = order[~self._taken(np.full(len(order), source), order)]
        if not len(free):
            raise GraphError(
                f"node {source} has an edge to every node that could be drawn: it has no negatives; "
                "exclude=False"
            )
        return int(free[0])


def _row_a_node(graph: Graph, given: Any, name: str) -> Tensor:
    values = torch.as_tensor(given).cpu()
    if values.shape != (graph.num_nodes,):
        shape = list(values.shape)
        raise GraphError(f"{name}: expected {graph.num_nodes:,} values, one a node, got shape {shape}")
    return values


def _pairs(graph: Graph, edge_dst: Tensor) -> Ints:
    return np.unique(graph.indices.long().numpy() * graph.num_nodes + edge_dst.numpy())
