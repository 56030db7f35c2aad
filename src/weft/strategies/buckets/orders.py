"""In which order an epoch visits its buckets.

A visit is two partitions and what is trained while they are in memory: the buckets (a, b) and (b, a), and
(a, a) where a is met for the first time. Every bucket after the first has a partition that was trained
before, else two halves of the rows would be learned in spaces of their own. A swap is a partition that is
read after the buffer was filled.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from weft.draw import Stream, fold, permutation

Pair = tuple[int, int]
OrderName = Literal["auto", "inside_out", "outside_in", "chained", "random", "buffered", "rounds"]
_LAYER = 1 << 16
"""Tells draws of orders from those of batches."""


@dataclass(frozen=True)
class Visit:
    """Partitions that are in memory together, and the buckets (of sources, of targets) trained there."""

    partitions: tuple[int, ...]
    buckets: tuple[Pair, ...]


def epoch_rounds(
    order: OrderName,
    partitions: int,
    buffer: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    common: int | None = None,
) -> list[list[Visit]]:
    """Return the visits of an epoch in rounds: visits of one have no partition in common.

    In all orders but "rounds" one visit follows the other. `common` is a partition that all visits have
    beside their own, of types that are not divided.
    """
    key = fold(seed, Stream.SHUFFLE, epoch, layer=_LAYER)
    if partitions == 1:
        return [[Visit((0,), ((0, 0),))]]
    if order == "rounds":
        players = permutation(key, partitions).tolist()
        return _with_buckets(_tournament(players) if epoch else _grown(players))
    found = _with_buckets([[pair] for pair in ORDERS[order](partitions, buffer, key)])
    return found if common is None else _with_common(found, common)


def inside_out(partitions: int, buffer: int, key: int) -> list[Pair]:
    """Return partition after partition, each with those before it."""
    found = []
    for new in range(1, partitions):
        before = range(new) if new % 2 == 0 else range(new - 1, -1, -1)  # the last one is here still
        found += [(old, new) for old in before]
    return found


def outside_in(partitions: int, buffer: int, key: int) -> list[Pair]:
    """Return `inside_out` backwards: the last partition with all others first."""
    return inside_out(partitions, buffer, key)[::-1]


def chained(partitions: int, buffer: int, key: int) -> list[Pair]:
    """Return pairs that each share a partition with the one just before: rows of the square, to and fro."""
    found = []
    for row in range(partitions):
        others = range(row + 1, partitions) if row % 2 == 0 else range(partitions - 1, row, -1)
        found += [(row, other) for other in others]
    return found


def by_chance(partitions: int, buffer: int, key: int) -> list[Pair]:
    """Return pairs in random order, each of those that share a partition with one before."""
    every = [*combinations(range(partitions), 2)]
    left = [every[at] for at in permutation(key, len(every))]
    found, seen = [left.pop(0)], set[int]()
    while left:
        seen.update(found[-1])
        found.append(left.pop(next(at for at, pair in enumerate(left) if seen.intersection(pair))))
    return found


def buffered(partitions: int, buffer: int, key: int) -> list[Pair]:
    """Return pairs so that a buffer of so many partitions has few swaps (Marius; Mohoney et al., 2021).

    All but one of the buffer stay while every other partition passes by in the last place; then new ones
    take the place of those that have met all.
    """
    held, rest = [*range(min(buffer, partitions))], [*range(buffer, partitions)]
    found = [*combinations(held, 2)]
    while rest:
        for place, new in enumerate(rest):
            rest[place], held[-1] = held[-1], new
            found += _met(held, new, found)
        for place, new in enumerate(rest[: buffer - 1]):
            held[place] = new
            found += _met(held, new, found)
        rest = rest[buffer - 1 :]
    return found


ORDERS: dict[str, Callable[[int, int, int], list[Pair]]] = {
    "inside_out": inside_out,
    "outside_in": outside_in,
    "chained": chained,
    "random": by_chance,
    "buffered": buffered,
}
"""(partitions, buffer, key of draws) to all pairs, by name."""


def oracle(partitions: int, buffer: int) -> int:
    """Return the swaps of `buffered`: (p - c) + (x + 1) ((p - c) - x (c - 1) / 2), x = ⌊(p - c) / (c - 1)⌋.

    >>> oracle(4, 2), oracle(6, 3)
    (5, 7)
    """
    over = partitions - buffer
    if over <= 0:
        return 0
    times = over // (buffer - 1)
    return over + (times + 1) * (2 * over - times * (buffer - 1)) // 2


def swaps(
    visits: Sequence[Sequence[int]], buffer: int, held: Iterable[int] = ()
) -> list[tuple[list[int], list[int]]]:
    """Return which partitions are read before each visit, and which go for them.

    Those go that are needed again last (Belady); `held` are there at the beginning.
    """
    uses: dict[int, list[int]] = {}
    for moment in range(len(visits) - 1, -1, -1):
        for one in visits[moment]:
            uses.setdefault(one, []).append(moment)
    inside, plan = [*held], []
    for visit in visits:
        for one in visit:
            uses[one].pop()
        loaded = [one for one in visit if one not in inside]
        gone: list[int] = []
        while len(inside) + len(loaded) > buffer:
            idle = [one for one in inside if one not in visit]
            gone.append(max(idle, key=lambda one: uses[one][-1] if uses.get(one) else len(visits)))
            inside.remove(gone[-1])
        inside += loaded
        plan.append((loaded, gone))
    return plan


def _met(held: Sequence[int], new: int, before: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of one who came and the others there that were not met before."""
    pairs = [(min(new, one), max(new, one)) for one in held if one != new]
    return [pair for pair in pairs if pair not in before]


def _tournament(players: Sequence[int]) -> list[list[Pair]]:
    """Return the rounds in which each meets each: the first stays, the others turn; -1 has a day off."""
    ring, found = [*players, *([-1] if len(players) % 2 else [])], []
    half = len(ring) // 2
    for _ in range(len(ring) - 1):
        met = zip(ring[:half], reversed(ring[half:]))
        found.append(sorted((min(a, b), max(a, b)) for a, b in met if min(a, b) >= 0))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def _grown(players: Sequence[int]) -> list[list[Pair]]:
    """Return rounds of an epoch that begins from nothing: one of each pair was in a round before."""
    left, found = [*combinations(players, 2)], list[list[Pair]]()
    seen = {players[0]}
    while left:
        busy = set[int]()
        for a, b in left:
            if not busy.intersection((a, b)) and seen.intersection((a, b)):
                busy.update((a, b))
                found += [] if len(busy) > 2 else [[]]
                found[-1].append((min(a, b), max(a, b)))
        left = [pair for pair in left if (min(pair), max(pair)) not in found[-1]]
        found[-1].sort()
        seen |= busy
    return found


def _with_common(rounds: Sequence[Sequence[Visit]], common: int) -> list[list[Visit]]:
    """Return visits that have a partition in common: its buckets with another follow that one's own."""
    found, first = [], True
    for visits in rounds:
        made = []
        for visit in visits:
            buckets = [(common, common)] if first else []
            for a, b in visit.buckets:
                buckets += [(a, b), (a, common), (common, a)] if a == b else [(a, b)]
            made.append(Visit((*visit.partitions, common), tuple(buckets)))
            first = False
        found.append(made)
    return found


def _with_buckets(rounds: Sequence[Sequence[Pair]]) -> list[list[Visit]]:
    """Return visits of pairs; a partition's own bucket is trained where it is met first."""
    seen, found = set[int](), []
    for pairs in rounds:
        visits = []
        for a, b in pairs:
            first, last = (a, b) if a in seen or b not in seen else (b, a)
            own = [[(one, one)] if one not in seen else [] for one in (first, last)]
            visits.append(Visit((a, b), (*own[0], (a, b), (b, a), *own[1])))
        found.append(visits)
        seen.update(one for pair in pairs for one in pair)
    return found
