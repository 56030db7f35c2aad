"""Moves that bring a partition within its bounds, after a library has made the cut.

The part that passes a bound the most gives nodes away: first those whose move cuts the fewest edges for the
excess that it removes. Where none can go, because others are full of something else, two nodes change places.
A move is made only if it lowers the excess over all bounds and all parts, so this ends. Where it would take
long, after a number of looks at moves that rises with the graph, it stops with what it has. It makes the same
moves every time.
"""

import numpy as np
from numpy.typing import NDArray

from weft.partitioners.base import Undirected
from weft.partitioners.constraints import Constraints, Parts

_LEAST = 1e-12
# Of a part, this many nodes are looked at for a change of places: pairs are many. And so often in all.
_TRIED = 256
_CHANGES = 1_000
# Looks at one move, some 20 µs each: so many, and so many for each node. A thousand moves that are looked at
# together count as one.
_LOOKS, _LOOKS_A_NODE, _TOGETHER = 500_000, 4, 1_000


def repair(near: Undirected, limits: Constraints, parts: Parts) -> Parts:
    """Return the parts with nodes moved until every bound is kept, or no move helps any more."""
    parts = parts.copy()
    state = _State(near, limits, parts)
    stuck: set[tuple[int, int]] = set()
    changes = 0
    while state.looks > 0 and (place := state.worst(stuck)) is not None:
        if state.relieve(*place):
            stuck.clear()
        elif changes < _CHANGES and state.change_places(*place):
            changes += 1
            stuck.clear()
        else:
            stuck.add(place)
    return parts


class _State:
    """Parts being repaired, and what each holds."""

    def __init__(self, near: Undirected, limits: Constraints, parts: Parts) -> None:
        self.near, self.parts, self.weights = near, parts, limits.weights
        self.scale = 1 / limits.mean
        self.bounds = limits.bounds
        self.loads = limits.loads(parts)
        self.looks = _LOOKS + _LOOKS_A_NODE * len(parts)

    def worst(self, stuck: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the constraint and the part that passes its bound the most, without those given up."""
        over = (self.loads - self.bounds[:, None]) * self.scale[:, None]
        for place in stuck:
            over[place] = 0
        constraint, part = np.unravel_index(int(over.argmax()), over.shape)
        return (int(constraint), int(part)) if over[constraint, part] > 0 else None

    def relieve(self, constraint: int, part: int) -> bool:
        """Move nodes out of a part until it keeps this bound; return whether any moved."""
        rows = np.flatnonzero((self.parts == part) & (self.weights[constraint] > 0))
        links = self._links(rows)
        gain = self._gain(rows, part)
        price = (links[:, part, None] - links) / np.maximum(gain, _LEAST)
        useful = np.flatnonzero(gain > _LEAST)
        order = useful[np.argsort(price.ravel()[useful], kind="stable")][: max(self.looks, 0)]
        self.looks -= 1 + gain.size // _TOGETHER
        moved = False
        for looked, place in enumerate(order.tolist(), 1):
            row, target = rows[place // links.shape[1]], place % links.shape[1]
            if (
                self.parts[row] == part
                and self._gain(rows[place // links.shape[1], None], part)[0, target] > _LEAST
            ):
                self._move(int(row), target)
                moved = True
                if self.loads[constraint, part] <= self.bounds[constraint]:
                    order = order[:looked]
                    break
        self.looks -= len(order)
        return moved

    def change_places(self, constraint: int, part: int) -> bool:
        """Let the two nodes change places that lower the excess most; return whether there are any."""
        heavy = _some(np.flatnonzero((self.parts == part) & (self.weights[constraint] > 0)))
        found, pair = _LEAST, (0, 0)
        for other in range(self.loads.shape[1]):
            light = _some(np.flatnonzero(self.parts == other))
            if other == part or not len(light):
                continue
            less = self.weights[:, heavy, None] - self.weights[:, None, light]
            limit = self.bounds[:, None, None]
            leaves, joins = self.loads[:, part, None, None], self.loads[:, other, None, None]
            before = np.maximum(leaves - limit, 0) + np.maximum(joins - limit, 0)
            after = np.maximum(leaves - less - limit, 0) + np.maximum(joins + less - limit, 0)
            gain = np.einsum("c,cvu->vu", self.scale, before - after)
            self.looks -= 1 + gain.size // _TOGETHER
            best = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[best] > found:
                found, pair = float(gain[best]), (int(heavy[best[0]]), int(light[best[1]]))
        if found <= _LEAST:
            return False
        mine, theirs = int(self.parts[pair[0]]), int(self.parts[pair[1]])
        self._move(pair[0], theirs)
        self._move(pair[1], mine)
        return True

    def _links(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many neighbours of each row lie in each part, [rows, parts]."""
        start, count = self.near.indptr[rows], np.diff(self.near.indptr)[rows]
        place = np.repeat(np.arange(len(rows)), count)
        edge = np.arange(count.sum()) + np.repeat(start - (np.cumsum(count) - count), count)
        num_parts = self.loads.shape[1]
        cell = place * num_parts + self.parts[self.near.indices[edge]]
        return np.bincount(cell, minlength=len(rows) * num_parts).reshape(len(rows), num_parts)

    def _gain(self, rows: NDArray[np.int64], part: int) -> NDArray[np.float64]:
        """Return by how much the excess falls if a row goes from this part to each, [rows, parts]."""
        weight = self.weights[:, rows]
        over = np.maximum(self.loads - self.bounds[:, None], 0)
        leaves = over[:, part, None] - np.maximum(
            self.loads[:, part, None] - weight - self.bounds[:, None], 0
        )
        joins = (
            np.maximum(self.loads[:, None] + weight[:, :, None] - self.bounds[:, None, None], 0)
            - over[:, None]
        )
        gain: NDArray[np.float64] = np.einsum("c,cr->r", self.scale, leaves)[:, None] - np.einsum(
            "c,crp->rp", self.scale, joins
        )
        gain[:, part] = 0
        return gain

    def _move(self, row: int, target: int) -> None:
        self.loads[:, self.parts[row]] -= self.weights[:, row]
        self.loads[:, target] += self.weights[:, row]
        self.parts[row] = target


def _some(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return these rows, or as many of them, evenly spread, as pairs are made of."""
    return rows[:: max(1, -(-len(rows) // _TRIED))]
