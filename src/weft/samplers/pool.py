"""Nodes to draw from, in groups, by weight and by counters: what all negatives are drawn by."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weft.draw import draw_lanes

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Taken = Callable[[Ints, Ints], Bools]
"""Whether nodes may not be drawn: given the places of rows and a node for each."""
ROUNDS = 8  # draws of one node before the next free one is looked for


class Pool:
    """Nodes side by side by group, and within a group by time where there are times.

    `bounds` [G + 1] says where groups begin; `order` [N] has the nodes, by default 0 … N − 1 (a group is then
    a range of ids, and uniform draws take no memory); `weight` and `time` [N] are those of nodes.
    """

    def __init__(
        self,
        bounds: Ints,
        *,
        order: Ints | None = None,
        weight: NDArray[np.float64] | None = None,
        time: NDArray[np.generic] | None = None,
    ) -> None:
        self.bounds = np.asarray(bounds, np.int64)
        if time is not None:
            group = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
            assert order is None
            order = np.lexsort((time, group))
        self.order = order
        self._time = None if time is None else time[order]
        self._sum: NDArray[np.float64] | None = None
        if weight is not None:
            self._sum = np.concatenate([[0.0], np.cumsum(weight if order is None else weight[order])])

    @classmethod
    def of_groups(cls, group: Ints, weight: NDArray[np.float64] | None = None) -> "Pool":
        """Return a pool of nodes by a number of their group, 0 … G − 1."""
        bounds = np.concatenate([[0], np.cumsum(np.bincount(group))])
        rising = bool((group[1:] >= group[:-1]).all())  # groups are ranges of ids
        return cls(bounds, order=None if rising else np.argsort(group, kind="stable"), weight=weight)

    def ranges(self, group: Ints, times: NDArray[np.generic] | None = None) -> tuple[Ints, Ints]:
        """Return the places of the nodes of groups, from low to below high: those there by a time."""
        low, high = self.bounds[group], self.bounds[group + 1]
        if times is None or self._time is None:
            return low, high
        high = low.copy()
        for kind in np.unique(group).tolist():
            some = group == kind
            times_of_kind = self._time[self.bounds[kind] : self.bounds[kind + 1]]
            high[some] += np.searchsorted(times_of_kind, times[some], side="right")
        return low, high

    def empty(self, low: Ints, high: Ints) -> Bools:
        """Return which ranges hold no node that can be drawn."""
        sizes = high - low if self._sum is None else self._sum[high] - self._sum[low]
        none: Bools = sizes <= 0
        return none

    def draw(
        self, rows: NDArray[np.uint64], count: int, low: Ints, high: Ints, taken: Taken
    ) -> tuple[Ints, Bools]:
        """Return `count` nodes for each row key, [n, count], and which of them are free.

        What is taken is drawn again some times, then the next free node of the range is. A row whose nodes
        are all taken, or that has none, gets nodes that are not free (or 0).
        """
        open_places = np.flatnonzero(np.repeat(~self.empty(low, high), count))
        at = np.zeros(len(rows) * count, np.int64)
        free = np.zeros(len(at), bool)
        for turn in range(ROUNDS):
            # Every try has a lane of its own, so that how often one place is drawn again changes no other.
            row, lanes = open_places // count, open_places % count + turn * count
            at[open_places] = self._pick(rows[row], lanes, low[row], high[row])
            stuck = taken(row, self._nodes(at[open_places]))
            free[open_places[~stuck]] = True
            open_places = open_places[stuck]
            if not len(open_places):
                break
        for row in np.unique(open_places // count).tolist():
            self._look(row, open_places[open_places // count == row], at, free, (low[row], high[row]), taken)
        return self._nodes(at).reshape(-1, count), free.reshape(-1, count)

    def _look(
        self, row: int, places: Ints, at: Ints, free: Bools, between: tuple[int, int], taken: Taken
    ) -> None:
        """Move the draws at some places of a row to the next free node, round its range."""
        nodes = np.arange(*between)
        if self._sum is not None:
            nodes = nodes[self._sum[nodes + 1] > self._sum[nodes]]
        nodes = nodes[~taken(np.full(len(nodes), row), self._nodes(nodes))]
        if len(nodes):
            at[places] = nodes[np.searchsorted(nodes, at[places]) % len(nodes)]
            free[places] = True

    def _nodes(self, at: Ints) -> Ints:
        return at if self.order is None else self.order[at]

    def _pick(self, rows: NDArray[np.uint64], lanes: Ints, low: Ints, high: Ints) -> Ints:
        # Two draws of 32 bits: one alone could not reach every node of a group of more than 2^32 weight.
        bits = draw_lanes(rows, 2 * lanes).astype(np.uint64) << np.uint64(32)
        bits |= draw_lanes(rows, 2 * lanes + 1).astype(np.uint64)
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        if self._sum is None:
            picked = low + (share * (high - low)).astype(np.int64)
        else:
            first, last = self._sum[low], self._sum[high]
            picked = np.searchsorted(self._sum, first + share * (last - first), side="right") - 1
        # A share next to 1 may round up to the end of the range, in float64 too.
        return np.clip(picked, low, high - 1)
