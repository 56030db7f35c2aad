"""LABOR's draws: each source has one number, and a row takes the edges whose number lies below their chance.

Chances of a row are such that the variance of its mean is that of `fanout` uniform draws. A row that would
take none takes the edge that was nearest to it.
"""

import numpy as np
from numpy.typing import NDArray

from weft.draw import draw_lanes, row_keys

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_ROUNDS = 20  # of solving for the scale of a row's chances; a few suffice


def numbers(key: NDArray[np.uint64], src: Ints, row: Ints) -> Floats:
    """Return a number in [0, 1) an edge: that of its source; copies side by side have one each."""
    new = np.ones(len(src), dtype=bool)
    new[1:] = (src[1:] != src[:-1]) | (row[1:] != row[:-1])
    place = np.arange(len(src))
    copy = place - np.maximum.accumulate(np.where(new, place, 0))
    return draw_lanes(row_keys(key, src), copy).astype(np.float64) * 2.0**-32


def taken(number: Floats, chance: Floats, row: Ints, num_rows: int) -> NDArray[np.bool_]:
    """Return which edges are drawn: those below their chance, or of a row without any the nearest."""
    drawn: NDArray[np.bool_] = number < chance
    some = np.zeros(num_rows, dtype=bool)
    some[row[drawn]] = True
    rest = np.flatnonzero(~some[row] & (chance > 0))
    order = rest[np.lexsort((rest, number[rest] / chance[rest], row[rest]))]
    _, firsts = np.unique(row[order], return_index=True)
    drawn[order[firsts]] = True
    return drawn


def chances(src: Ints, row: Ints, degree: Ints, fanout: Ints, iterations: int) -> Floats:
    """Return the chance of each edge; with 0 iterations fanout / degree, at most 1.

    `fanout` has the draws of each row, negative: all.
    """
    sources, place = np.unique(src, return_inverse=True)
    favour = np.ones(len(sources))
    scale = _scales(favour[place], row, degree, fanout)
    for _ in range(iterations):
        largest = np.zeros(len(sources))
        np.maximum.at(largest, place, scale[row])
        favour = np.where(largest > 0, favour * largest, favour)  # where all fanouts are 0 nothing is drawn
        scale = _scales(favour[place], row, degree, fanout)
    return np.minimum(1.0, scale[row] * favour[place])


def _scales(favour: Floats, row: Ints, degree: Ints, fanout: Ints) -> Floats:
    """Return c of each row, such that Σ 1 / min(1, c · favour) = degree² / fanout, or all edges are in."""
    few, none = (degree <= fanout) | (fanout < 0), fanout == 0
    least = np.full(len(degree), np.inf)
    np.minimum.at(least, row, favour)
    target = np.where(few | none, 1.0, degree**2 / np.where(none, 1, fanout))
    scale = np.zeros(len(degree))
    for _ in range(_ROUNDS):
        sure = scale[row] * favour >= 1.0
        certain = np.bincount(row[sure], minlength=len(degree))
        rest = np.bincount(row[~sure], 1.0 / favour[~sure], minlength=len(degree))
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = np.where(few, 1.0 / least, rest / (target - certain))
        scales = np.where(none, 0.0, np.maximum(scale, scales))  # it rises; rounding must not turn it back
        if np.array_equal(scales, scale):
            break
        scale = scales
    return scale
