"""The best of a few partitions, and one weight per node for libraries that balance no more than one.

KaMinPar, as it is packaged, balances a single weight. Here it is a combination of all that is to be balanced,

    w(v) = 100 · Σ_c s_c · w_c(v) / mean(w_c) / Σ_c s_c,    rounded, at least 1

and a small search finds the shares s: it starts from nodes alone, then from equal shares, and raises the
share of whatever is balanced worst. A single weight bounds the sum and nothing in it, so each partition is
repaired (`partitioners/repair.py`). The result is the cheapest one (halo rows or cut edges) that keeps every
bound.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from weft.partitioners.base import Undirected
from weft.partitioners.constraints import Constraints, Parts
from weft.partitioners.repair import repair

_SCALE = 100.0


def combined(limits: Constraints, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return one weight of each node, [N], in which everything balanced has its share."""
    total = (shares / limits.weights.mean(1)) @ limits.weights
    weight: NDArray[np.int64] = np.maximum(np.rint(_SCALE * total / shares.sum()), 1).astype(np.int64)
    return weight


def best(
    near: Undirected, limits: Constraints, made: Iterable[Parts], cost: Callable[[Parts], float]
) -> Parts:
    """Return, of partitions repaired first, the one that passes its bounds least, the cheapest of these."""
    repaired = [repair(near, limits, parts) for parts in made]
    return min(repaired, key=lambda parts: (limits.excess(parts), cost(parts), limits.balance(parts).sum()))


def searched(
    limits: Constraints, divide: Callable[[NDArray[np.int64] | None], Parts], *, tries: int
) -> Iterable[Parts]:
    """Yield a few partitions: `divide` makes one from weights (None: all equal)."""
    shares = np.eye(len(limits.names))[0]
    for step in range(tries):
        parts = divide(combined(limits, shares) if step else None)
        yield parts
        if not limits.broken(parts):
            break
        # Ever smaller steps: what was lifted too far must not swing back and forth.
        lifted = np.where(
            limits.balance(parts) == limits.balance(parts).max(), 2.0 ** (1.0 / max(step, 1)), 1
        )
        shares = shares * lifted if step else np.ones(len(limits.names))
