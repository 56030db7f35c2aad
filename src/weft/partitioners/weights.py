"""One weight a node that balances nodes, edges and training nodes at once.

METIS and KaMinPar, as they are packaged, balance a single weight. Here it is a combination

    w(v) = 100 · (a + b · in_degree(v) / mean + c · train(v) / mean) / (a + b + c),    rounded, at least 1

and a small search finds a, b, c: it starts from nodes alone, then from equal shares, and raises the share of
whatever is balanced worst. The result is the try with the best worst balance among those whose cost (halo
rows or cut edges) is at most (1 + max_rise) times the cheapest one's, or below a hundredth of all nodes or
edges: there, waiting for the largest part costs more than the rows that travel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.graph.graph import Graph
from weft.partitioners.base import train_rows

Shares = tuple[float, float, float]
Parts = NDArray[np.int32]
_SCALE = 100.0
_SMALL = 0.01
# Where the search ends early. On web_google in 8 parts this is the second try (worst balance 1.055, 32,625
# halo rows); all four tries give 1.053 and 31,840.
_EVEN = 1.06


@dataclass(frozen=True)
class Try:
    """One partition of the search."""

    shares: Shares
    """Of nodes, edges and training nodes in the weight."""
    parts: Parts
    cost: float
    balance: tuple[float, float, float]
    """Largest part over mean part: nodes, edges, training nodes."""


class Combined:
    """Weights of nodes for given shares, and the balance a partition has."""

    def __init__(self, graph: Graph, num_parts: int) -> None:
        self.num_parts = num_parts
        train = train_rows(graph).numpy().astype(np.float64)
        counts = [np.ones(graph.num_nodes), graph.indptr.diff().numpy().astype(np.float64), train]
        self.counts = [count if count.any() else None for count in counts]

    def weight(self, shares: Shares) -> NDArray[np.int64]:
        """Return the combined weight of each node, [N]."""
        total = np.zeros(len(self.counts[0]) if self.counts[0] is not None else 0)
        for share, count in zip(shares, self.counts):
            if share and count is not None:
                total += share * count / count.mean()
        return np.maximum(np.rint(_SCALE * total / sum(shares)), 1).astype(np.int64)

    def balance(self, parts: Parts) -> tuple[float, float, float]:
        """Return max over mean of nodes, edges and training nodes; 1 where there are none."""
        told = [1.0, 1.0, 1.0]
        for place, count in enumerate(self.counts):
            if count is not None:
                told[place] = float(
                    np.bincount(parts, count, self.num_parts).max() * self.num_parts / count.sum()
                )
        return told[0], told[1], told[2]


def search(
    weights: Combined,
    divide: Callable[[NDArray[np.int64] | None], Parts],
    cost: Callable[[Parts], float],
    *,
    tries: int,
    max_rise: float,
    total: int,
) -> Try:
    """Return the best of a few partitions: `divide` makes one from weights (None: all equal).

    `total` is the number of nodes or edges that the cost is a share of.
    """
    made: list[Try] = []
    present = [count is not None for count in weights.counts]
    shares: Shares = (1.0, 0.0, 0.0)
    for step in range(tries):
        parts = divide(weights.weight(shares) if step else None)
        made.append(Try(shares, parts, cost(parts), weights.balance(parts)))
        worst = int(np.argmax(made[-1].balance))
        if made[-1].balance[worst] <= _EVEN:
            break
        if step == 0:
            shares = (1.0, float(present[1]), float(present[2]))
        else:
            # Ever smaller steps: what was lifted too far must not swing back and forth.
            factor = 2.0 ** (1.0 / step)
            lifted = [share * (factor if place == worst else 1.0) for place, share in enumerate(shares)]
            shares = (lifted[0], lifted[1], lifted[2])
    allowed = max((1.0 + max_rise) * min(one.cost for one in made), _SMALL * total)
    return min((one for one in made if one.cost <= allowed), key=lambda one: max(one.balance))
