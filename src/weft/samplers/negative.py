"""Negatives: nodes that an edge might have led to and does not, drawn by counters.

The negatives of an edge are a function of (seed, epoch, edge): the same in any batch, in one process or many.
"""

from typing import Literal

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
    """Draw `count` targets for each source: uniform over nodes, or by in-degree^0.75 ("degree").

    `exclude` leaves out targets that the source has an edge to, and the source itself. Targets are of the
    type of the edge's own target where there are several node types.

    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]])
    >>> NegativeSampler(graph, 1).sample(torch.tensor([0, 1, 2])).tolist()    # the one node left
    [[1], [2], [0]]
    """

    def __init__(
        self,
        graph: Graph,
        count: int = 1,
        *,
        by: Literal["uniform", "degree"] = "uniform",
        exclude: bool = True,
        seed: int = 0,
    ) -> None:
        if by not in ("uniform", "degree"):
            raise InputError(f"by must be 'uniform' or 'degree', got {by!r}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"count must be a whole number of at least 1, got {count!r}")
        self.graph, self.count, self.by, self.exclude, self.seed = graph, count, by, exclude, seed
        self.edge_dst = edge_destinations(graph.indptr)  # [E] of canonical edges
        self._known = _pairs(graph, self.edge_dst) if exclude else None
        weight = graph.in_degree().double().pow(0.75).numpy() if by == "degree" else np.ones(graph.num_nodes)
        self._sum = np.concatenate([[0.0], np.cumsum(weight)])

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

    def _range(self, targets: Ints) -> tuple[Ints, Ints]:
        """Return the first and the last node + 1 of the type of each target, for each negative."""
        offsets = np.asarray(self.graph.node_offsets)
        kind = np.searchsorted(offsets, np.repeat(targets, self.count), side="right")
        return offsets[kind - 1], offsets[kind]

    def _draw(self, rows: NDArray[np.uint64], lanes: Ints, low: Ints, high: Ints) -> Ints:
        bits = draw_lanes(rows, 2 * lanes).astype(np.uint64) << np.uint64(32)
        bits |= draw_lanes(rows, 2 * lanes + 1).astype(np.uint64)
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        first, last = self._sum[low], self._sum[high]
        found = np.searchsorted(self._sum, first + share * (last - first), side="right") - 1
        nodes: Ints = np.clip(found, low, high - 1).astype(np.int64)
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
        """Return the first node from the drawn one on that the source has no edge to."""
        order = low + (np.arange(high - low) + drawn - low) % (high - low)
        free = order[~self._taken(np.full(len(order), source), order)]
        if not len(free):
            raise GraphError(f"node {source} has an edge to every node: it has no negatives; exclude=False")
        return int(free[0])


def _pairs(graph: Graph, edge_dst: Tensor) -> Ints:
    return np.unique(graph.indices.long().numpy() * graph.num_nodes + edge_dst.numpy())
