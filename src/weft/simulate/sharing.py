"""How flows share links: max-min fairness, by progressive filling.

No flow could be faster without making one slower that is not faster than itself: what many streams of TCP
over the same links come to, and what every simulator of flows assumes.
"""

import numpy as np
from numpy.typing import NDArray

Rates = NDArray[np.float64]
_SLACK = 1 + 1e-9


def fair_rates(paths: NDArray[np.int64], capacity: Rates, rounds: int | None = None) -> Rates:
    """Return the bytes a second of each flow; `paths` [flows, k] are the links it crosses.

    In every round all links that hold back each of their own flows are filled, wherever they are. After so
    many `rounds` those that are left take the share of their tightest link, which is a lower bound.

    >>> fair_rates(np.array([[0, 2], [0, 1]]), np.array([10.0, 4.0, 99.0])).tolist()
    [6.0, 4.0]
    """
    rates = np.zeros(len(paths))
    left, active = capacity.astype(np.float64).copy(), np.arange(len(paths))
    size = len(capacity)
    done = 0
    while len(active):
        held = paths[active]
        count = np.bincount(held.ravel(), minlength=size)
        share = np.divide(left, count, out=np.full(size, np.inf), where=count > 0)
        each = share[held]
        least = each.min(1)
        tight = np.bincount(held[each <= least[:, None] * _SLACK], minlength=size)
        full = (tight == count) & (count > 0)
        done += 1
        frozen = full[held].any(1) if done != rounds else np.ones(len(active), dtype=bool)
        rates[active[frozen]] = least[frozen]
        taken = np.repeat(least[frozen], paths.shape[1])
        left -= np.bincount(held[frozen].ravel(), weights=taken, minlength=size)
        np.maximum(left, 0.0, out=left)
        active = active[~frozen]
    return rates
