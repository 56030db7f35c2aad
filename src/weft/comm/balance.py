"""Traffic that fits the links: how much travels where, so that all links finish together.

`rows[i, j]` are rows that i sends to j in a forward pass, whose gradients return from j to i; `speed[i, j]`
is in bytes a second. Equal inputs give equal answers, so ranks that measured together decide alike.
"""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
BITS = (2, 4, 8, 16)


def shares(rows: Matrix, cost: Matrix, *, mean: float, least: float) -> Matrix:
    """Return the share of rows that each link brings: as many in all as a share `mean` everywhere would.

    `cost[i, j]` are the seconds of a row. A link brings what it can until all end, at least `least`.
    """
    seconds = np.where(rows > 0, rows * cost, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = 0.0, float(seconds.max(initial=0.0))
        for _ in range(60):
            middle = (low + high) / 2
            share = np.where(seconds > 0, np.clip(middle / seconds, least, 1.0), 1.0)
            low, high = (middle, high) if (share * rows).sum() < mean * rows.sum() else (low, middle)
        return np.where(seconds > 0, np.clip(high / seconds, least, 1.0), 1.0)


def bits(rows: Matrix, speed: Matrix, *, mean: float) -> NDArray[np.int64]:
    """Return the bits a value of what each link carries: `mean` on the average, fewer where it is slow."""
    moved = rows + rows.T
    seconds = np.where(moved > 0, moved / speed, 0.0)
    chosen = np.full(rows.shape, BITS[0], dtype=np.int64)
    for end in np.unique(np.outer(seconds, BITS)):
        for level in BITS:
            chosen[seconds * level <= end * (1 + 1e-9)] = level
        if (chosen * moved).sum() >= mean * moved.sum():
            break
    return chosen
