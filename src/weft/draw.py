"""Random numbers as a function of counters: nothing is stored, nothing depends on order.

A draw is a function of (run seed, stream, epoch, step, layer, global id, lane). The stream names the purpose,
the id is a node or an edge of the whole graph, the lane a column, a head or a number of the draw. So a
dropout mask, a sample or a shuffle is the same for one process and for many, for any number of threads, and
after a resume.

    key  = fold(seed, stream, epoch, step, layer)            64 bits, once a call
    row  = mix64(key + 0x9E3779B97F4A7C15 * (id + 1))        64 bits, once an id
    draw = mix32(mix32(low32(row) + 0x9E3779B9 * lane) ^ high32(row))      32 bits

The C++ form is csrc/draw.h, the torch form kernels/reference.py; tests/test_draw.py holds all of them to the
same vectors. mix64 is the finaliser of SplitMix64, mix32 a 32-bit multiply-xorshift finaliser with low bias.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

GOLDEN64 = 0x9E3779B97F4A7C15
GOLDEN32 = 0x9E3779B9
_MASK64 = (1 << 64) - 1


class Stream(IntEnum):
    """What a draw is for. Numbers are part of every saved run: never change one, only add."""

    SAMPLE = 1
    DROPOUT = 2
    ATTENTION = 3
    BOUNDARY = 4
    ROUND = 5
    SHUFFLE = 6
    NEGATIVE = 7
    SYNTHETIC = 8
    SPLIT = 9
    WALK = 10
    ROWS = 11
    SIMULATE = 12


def fold(seed: int, stream: int, epoch: int = 0, step: int = 0, layer: int = 0) -> int:
    """Return the 64-bit key of one purpose at one moment of a run."""
    key = 0
    for value in (seed, stream, epoch, step, layer):
        key = _mix64(key + GOLDEN64 * (value + 1))
    return key


def signed(key: int) -> int:
    """Return the 64-bit key as the signed number of the same bits, which is what torch and kernels take."""
    return key - (1 << 64) if key >= 1 << 63 else key


def draw(key: int, ids: NDArray[np.integer], lanes: NDArray[np.integer] | int = 0) -> NDArray[np.uint32]:
    """Return 32 uniform bits for each (id, lane); ids and lanes are broadcast against each other."""
    return draw_lanes(row_keys(key, ids), lanes)


def row_keys(key: int | NDArray[np.uint64], ids: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return the 64 bits of each id, from which its lanes are drawn; keys and ids are broadcast."""
    with np.errstate(over="ignore"):
        stride = np.uint64(GOLDEN64) * (np.asarray(ids).astype(np.uint64) + np.uint64(1))
        return _mix64_array(np.asarray(key, dtype=np.uint64) + stride)


def draw_lanes(rows: NDArray[np.uint64], lanes: NDArray[np.integer] | int = 0) -> NDArray[np.uint32]:
    """Return 32 uniform bits for each (row key, lane); the two are broadcast against each other."""
    with np.errstate(over="ignore"):
        low = (rows & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        high = (rows >> np.uint64(32)).astype(np.uint32)
        lane = np.asarray(lanes).astype(np.uint32)
        return _mix32_array(_mix32_array(low + np.uint32(GOLDEN32) * lane) ^ high)


def draw_positions(
    keys: NDArray[np.uint64],
    degrees: NDArray[np.integer],
    fanout: NDArray[np.integer] | int,
    *,
    replace: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many positions each row gets, and the positions 0 … degree − 1 of all rows one by one.

    `keys` are row keys. Of a row with more than `fanout` positions, `fanout` are drawn uniformly without
    replacement by Floyd's algorithm, in the order of drawing; of another all are taken, in order; a negative
    fanout takes all of every row. With replacement a row that has any gets `fanout` draws. A draw has 32
    bits: two positions of a row differ in probability by at most degree / 2³².

    >>> counts, positions = draw_positions(row_keys(7, np.arange(3)), np.array([2, 0, 9]), 3)
    >>> counts.tolist(), len(positions)
    ([2, 0, 3], 5)
    """
    sizes: NDArray[np.int64] = np.asarray(degrees, dtype=np.int64)
    fanouts = np.broadcast_to(np.asarray(fanout, dtype=np.int64), sizes.shape)
    drawn = (fanouts >= 0) & (sizes > 0) & ((sizes > fanouts) | replace)
    counts = np.where(drawn, fanouts, sizes)
    ends = np.cumsum(counts)
    starts = ends - counts
    positions = np.arange(counts.sum(), dtype=np.int64) - np.repeat(starts, counts)
    for wanted in np.unique(fanouts[drawn]).tolist():
        rows = np.flatnonzero(drawn & (fanouts == wanted))
        chosen = (_with_replacement if replace else _floyd)(keys[rows], sizes[rows], wanted)
        positions[starts[rows, None] + np.arange(wanted)] = chosen
    return counts, positions


def _with_replacement(keys: NDArray[np.uint64], degrees: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    return _scaled(draw_lanes(keys[:, None], np.arange(wanted)), degrees[:, None])


def _floyd(keys: NDArray[np.uint64], degrees: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """Return `wanted` distinct positions a row: step i draws from 0 … base + i, both included."""
    chosen = np.empty((len(keys), wanted), dtype=np.int64)
    base = degrees - wanted
    for step in range(wanted):
        drawn = _scaled(draw_lanes(keys, step), base + (step + 1))
        taken = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, base + step, drawn)
    return chosen


def _scaled(bits: NDArray[np.uint32], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    return ((bits.astype(np.uint64) * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def uniform(key: int, ids: NDArray[np.integer], lanes: NDArray[np.integer] | int = 0) -> NDArray[np.float64]:
    """Return numbers in [0, 1), one for each (id, lane)."""
    return draw(key, ids, lanes).astype(np.float64) * 2.0**-32


def normal(key: int, ids: NDArray[np.integer], lanes: NDArray[np.integer] | int = 0) -> NDArray[np.float64]:
    """Return standard normal numbers, one for each (id, lane); uses lanes 2·lane and 2·lane + 1."""
    lanes = np.asarray(lanes)
    radius = np.sqrt(-2.0 * np.log1p(-uniform(key, ids, 2 * lanes)))
    angle: NDArray[np.float64] = 2.0 * np.pi * uniform(key, ids, 2 * lanes + 1)
    return radius * np.cos(angle)


def exponential(
    keys: int | NDArray[np.uint64], edges: NDArray[np.integer], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return exponential numbers of rate `weight`, drawn by the ids of edges."""
    row = row_keys(keys, edges)
    high, low = (draw_lanes(row, lane).astype(np.uint64) for lane in (0, 1))
    bits = (high << np.uint64(32) | low) >> np.uint64(11)
    return -exact_log((bits.astype(np.float64) + 0.5) * 2.0**-53) / weight


def exact_log(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return natural logarithms from exactly rounded operations alone, so that C++ gives the same bits."""
    m, exponent = np.frexp(value)
    m, exponent = 2.0 * m, exponent - 1
    large = m > 1.4142135623730951
    m, exponent = np.where(large, m * 0.5, m), exponent + large
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    total = np.full(len(value), 1.0 / 21.0)
    for odd in range(19, 0, -2):
        total = total * z + 1.0 / odd
    result: NDArray[np.float64] = exponent * 0.6931471805599453 + 2.0 * s * total
    return result


def permutation(key: int, count: int) -> NDArray[np.int64]:
    """Return a uniform permutation of 0 … count − 1."""
    ids = np.arange(count)
    # Two draws make a 64-bit sort key: with 32 bits alone ties would favour small ids.
    high, low = draw(key, ids, 0).astype(np.uint64), draw(key, ids, 1).astype(np.uint64)
    return np.argsort((high << np.uint64(32)) | low, kind="stable")


def threshold(probability: float) -> int:
    """Return t in 0 … 2³² such that a draw is below t with the given probability."""
    return min(max(round(probability * 2.0**32), 0), 1 << 32)


def _mix64(value: int) -> int:
    value &= _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def _mix64_array(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mix32_array(value: NDArray[np.uint32]) -> NDArray[np.uint32]:
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    value = (value ^ (value >> np.uint32(15))) * np.uint32(0x735A2D97)
    return value ^ (value >> np.uint32(15))
