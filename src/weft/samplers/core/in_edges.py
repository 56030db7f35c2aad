"""Edges to walk along and to draw by weight, whoever holds them.

Each worker holds the edges into its own nodes; what it does not know counts nothing, and sums over workers
are known to all. One process is the case of one worker. Weights are whole numbers, so that sums, and with
them what is drawn, do not depend on how many workers there are.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_BITS = 62  # of a running sum of weights


class InEdges:
    """Incoming edges of all nodes; `together` gives the sum over workers of what each has.

    `indptr` [N + 1] and `indices` (global sources) have the edges held here: rows of others are empty.
    """

    def __init__(
        self, indptr: Tensor, indices: Tensor, together: Callable[[Tensor], Tensor] = lambda held: held
    ) -> None:
        self.indptr, self.indices, self.together = indptr, indices.long(), together
        self.num_nodes = len(indptr) - 1
        self.degree = together(indptr.diff())  # [N] of the whole graph
        self.num_edges = int(self.degree.sum())

    def follow(self, nodes: Ints, places: Floats) -> Ints:
        """Return the source of an incoming edge of each node, by a number in [0, 1); itself without one."""
        start = self.indptr[nodes]
        degree = self.indptr[nodes + 1] - start
        place = torch.from_numpy(places)
        chosen = start + torch.minimum((place * degree).long(), (degree - 1).clamp(min=0))
        found = torch.zeros(len(nodes), dtype=torch.int64)
        found[degree > 0] = self.indices[chosen[degree > 0]] + 1
        found = self.together(found)
        moved: Ints = torch.where(found > 0, found - 1, torch.from_numpy(nodes)).numpy()
        return moved

    def node_weights(self) -> Tensor:
        """Return the squared shares that each node has in the means of others, [N] int64, to scale."""
        share = self._share(square=True)
        dst = torch.repeat_interleave(self.indptr.diff(), output_size=len(self.indices))
        weight = self.together(
            torch.zeros(self.num_nodes, dtype=torch.int64).index_add_(0, self.indices, share[dst])
        )
        return weight if bool(weight.any()) else torch.ones_like(weight)

    def edge_weights(self) -> tuple[Tensor, Tensor]:
        """Return the weight of each edge held, its shares both ways, and the sum of each row, [N] int64."""
        share = self._share(square=False)
        dst = torch.repeat_interleave(self.indptr.diff(), output_size=len(self.indices))
        weight = share[dst] + share[self.indices]
        return weight, self.together(
            torch.zeros(self.num_nodes, dtype=torch.int64).index_add_(0, dst, weight)
        )

    def pick(self, running: Tensor, rows: Ints, rest: Ints) -> Ints:
        """Return the source of the edge of each row at which the running weight of the row passes `rest`."""
        before = torch.cat([running.new_zeros(1), running])
        start, stop = self.indptr[rows], self.indptr[rows + 1]
        chosen = torch.searchsorted(running, before[start] + torch.from_numpy(rest), right=True)
        found = torch.zeros(len(rows), dtype=torch.int64)
        held = stop > start
        found[held] = self.indices[torch.minimum(chosen[held], stop[held] - 1)]
        source: Ints = self.together(found).numpy()
        return source

    def _share(self, *, square: bool) -> Tensor:
        """Return 1 / degree of each node, or its square, as whole numbers whose sums do not overflow."""
        bits = _BITS - (2 * self.num_edges + self.num_nodes).bit_length()
        share = self.degree.clamp(min=1).double().reciprocal()
        return ((share.square() if square else share) * 2.0**bits).round().long()
