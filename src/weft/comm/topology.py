"""LinkMap among workers, and which worker should hold which part so that the busiest link ends first.

A message between two workers crosses some links, each with a bandwidth, which other messages may share. The
load of a link is the bytes that cross it; a deal is good where the largest of load / bandwidth is small.
Equal inputs give equal answers, so ranks that measured together decide alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from math import comb

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Cost = tuple[float, float]
_EXHAUSTIVE = 7
_SUBSETS = 20_000
_GAIN = 1e-3  # less is not worth another round of exchanges
_ROUNDING = 1e-9
_ROUNDS = 2


@dataclass(frozen=True)
class Behind:
    """Workers that only some links join to the others, and the bytes a second of these links, each way."""

    workers: tuple[int, ...]
    bandwidth: float


@dataclass(frozen=True)
class LinkMap:
    """The links among workers, and which of them a message crosses."""

    names: tuple[str, ...]
    bandwidth: Matrix
    """Bytes a second of each."""
    paths: NDArray[np.int64]
    """[sender, receiver, crossed]: numbers of links, −1 where no more are crossed."""
    cuts: tuple[Behind, ...]
    """Where a bottleneck may be."""

    @staticmethod
    def of_pairs(speed: Matrix) -> "LinkMap":
        """Return a link of its own from each worker to each other, with bytes a second as measured."""
        size = len(speed)
        apart = ~np.eye(size, dtype=bool)
        paths = np.full((size, size, 1), -1)
        paths[apart, 0] = np.arange(size * (size - 1))
        names = tuple(
            f"worker {here} to {there}" for here in range(size) for there in range(size) if here != there
        )
        both = np.where(apart, speed, 0.0)
        each = (both.sum(axis=0) + both.sum(axis=1)) / 2
        cuts = tuple(Behind((worker,), float(each[worker])) for worker in range(size) if size > 1)
        return LinkMap(names, speed[apart], paths, cuts)

    @property
    def workers(self) -> int:
        """How many workers they join."""
        return len(self.paths)

    def load(self, traffic: Matrix) -> Matrix:
        """Return the bytes that cross each link; `traffic[i, j]` go from worker i to worker j."""
        pairs, links = self._crossings
        found = np.bincount(links, weights=traffic.ravel()[pairs], minlength=len(self.names))
        return found.astype(np.float64, copy=False)

    @cached_property
    def _crossings(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pairs of workers, numbered in rows, and the links that each crosses."""
        flat = self.paths.reshape(-1, self.paths.shape[2])
        pairs, places = np.nonzero(flat >= 0)
        return pairs, flat[pairs, places]

    def seconds(self, traffic: Matrix) -> Matrix:
        """Return the seconds after which each link has carried what crosses it."""
        return self.load(traffic) / self.bandwidth

    def cost(self, traffic: Matrix) -> Cost:
        """Return the seconds of the busiest link and of all together."""
        seconds = self.seconds(traffic)
        return float(seconds.max(initial=0.0)), float(seconds.sum())

    def near(self, link: int) -> set[int]:
        """Return the workers of the smaller side of a link: nothing else changes what crosses it."""
        senders, receivers = (set(each.tolist()) for each in np.nonzero((self.paths == link).any(axis=2)))
        if len(senders) == len(receivers):
            return senders | receivers
        return min(senders, receivers, key=len)


def folded(traffic: Matrix, deal: Sequence[int], workers: int) -> Matrix:
    """Return bytes between workers, of bytes between parts; what stays with a worker is none."""
    holds = np.zeros((len(deal), workers))
    holds[np.arange(len(deal)), list(deal)] = 1.0
    found = holds.T @ traffic @ holds
    np.fill_diagonal(found, 0.0)
    return found


def best_deal(
    traffic: Matrix, links: LinkMap, usual: Sequence[int], *, fixed: Matrix | None = None, worth: float = 1.0
) -> list[int]:
    """Return the worker that should hold each part; each holds as many parts as in the usual deal.

    `fixed` are bytes between workers whoever holds what, as those of sums of gradients.

    The busiest link ends first: exactly so for a few parts, else by exchanges of two parts, from the usual
    deal and from a greedy one.
    The usual deal stays where no other needs less than a share `worth` of its time.
    """
    stay = list(usual)
    always = np.zeros((links.workers, links.workers)) if fixed is None else fixed

    def cost(deal: Sequence[int]) -> Cost:
        return links.cost(folded(traffic, deal, links.workers) + always)

    first = cost(stay)
    tried: Iterable[Sequence[int]]
    if len(stay) <= _EXHAUSTIVE:
        tried = dict.fromkeys(permutations(stay))
    else:
        tried = [
            _swapped(_Deal(traffic, always), links, start)
            for start in (stay, _greedy(traffic, always, links, stay))
        ]
    best = min(tried, key=cost)
    found = cost(best)
    return list(best) if found[0] <= worth * first[0] and _gains(found, first, _ROUNDING) else stay


def least_seconds(traffic: Matrix, links: LinkMap, usual: Sequence[int]) -> float:
    """Return what no deal can be faster than: the sparsest way through any bottleneck, when all else is free.

    As many parts as stand behind it are joined to the others by at least so many bytes: of all choices where
    these are few, else by the second eigenvalue of the graph of parts (Fiedler).
    """
    weights = (traffic + traffic.T) / 2
    np.fill_diagonal(weights, 0.0)
    least: dict[int, float] = {}
    found = 0.0
    for cut in links.cuts:
        count = sum(owner in cut.workers for owner in usual)
        if 0 < count < len(usual):
            if count not in least:
                least[count] = _sparsest(weights, count)
            found = max(found, least[count] / cut.bandwidth)
    return found


def _sparsest(weights: Matrix, count: int) -> float:
    """Return a lower bound of the bytes between `count` parts and the others, whichever these are."""
    size = len(weights)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    if comb(size, count) > _SUBSETS:
        second = float(np.linalg.eigvalsh(laplacian)[1])
        return max(0.0, second * count * (size - count) / size)
    chosen = np.zeros((comb(size, count), size))
    for row, held in enumerate(combinations(range(size), count)):
        chosen[row, list(held)] = 1.0
    return float(np.einsum("ri,ij,rj->r", chosen, laplacian, chosen, optimize=True).min())


class _Deal:
    """Parts on workers, and the bytes between these, kept up to date as parts move."""

    def __init__(self, traffic: Matrix, fixed: Matrix) -> None:
        workers = len(fixed)
        self.fixed = fixed
        self.traffic = traffic - np.diag(np.diag(traffic))
        self.owner = [-1] * len(traffic)
        self.out, self.back = (np.zeros((len(traffic), workers)) for _ in range(2))
        self.between = np.zeros((workers, workers))

    def put(self, part: int, worker: int, sign: int = 1) -> None:
        """Give a part to a worker, or with −1 take it away."""
        self.between[worker] += sign * self.out[part]
        self.between[:, worker] += sign * self.back[part]
        self.out[:, worker] += sign * self.traffic[:, part]
        self.back[:, worker] += sign * self.traffic[part]
        self.owner[part] = worker if sign > 0 else -1

    def exchange(self, one: int, other: int) -> None:
        """Have two parts change places."""
        here, there = self.owner[one], self.owner[other]
        self.put(one, here, -1)
        self.put(other, there, -1)
        self.put(one, there)
        self.put(other, here)

    def crossing(self) -> Matrix:
        """Return the bytes between different workers."""
        return self.between - np.diag(np.diag(self.between)) + self.fixed


def _greedy(traffic: Matrix, fixed: Matrix, links: LinkMap, usual: Sequence[int]) -> list[int]:
    """Return a deal that gives each part, those with most traffic first, to where it then costs least."""
    deal = _Deal(traffic, fixed)
    room = [list(usual).count(worker) for worker in range(links.workers)]
    for part in np.argsort(-(traffic.sum(axis=0) + traffic.sum(axis=1)), kind="stable").tolist():
        costs: dict[int, Cost] = {}
        for worker in (each for each in range(links.workers) if room[each]):
            deal.put(part, worker)
            costs[worker] = links.cost(deal.crossing())
            deal.put(part, worker, -1)
        chosen = min(costs, key=lambda worker: costs[worker])
        deal.put(part, chosen)
        room[chosen] -= 1
    return deal.owner


def _swapped(deal: _Deal, links: LinkMap, start: Sequence[int]) -> list[int]:
    """Return a deal that no exchange of two parts at the busiest link makes better."""
    for part, worker in enumerate(start):
        deal.put(part, worker)
    for _ in range(_ROUNDS * len(deal.owner)):
        if not _improved(deal, links):
            break
    return deal.owner


def _improved(deal: _Deal, links: LinkMap) -> bool:
    """Exchange the two parts that make the deal best; whether any make it better."""
    seconds = links.seconds(deal.crossing())
    if not len(seconds):
        return False
    first = best = (float(seconds.max()), float(seconds.sum()))
    chosen: tuple[int, int] | None = None
    near = links.near(int(seconds.argmax()))
    for one in (part for part, worker in enumerate(deal.owner) if worker in near):
        for other, worker in enumerate(deal.owner):
            if worker == deal.owner[one]:
                continue
            deal.exchange(one, other)
            found = links.cost(deal.crossing())
            if _gains(found, first, _GAIN) and found < best:
                best, chosen = found, (one, other)
            deal.exchange(one, other)
    if chosen is not None:
        deal.exchange(*chosen)
    return chosen is not None


def _gains(found: Cost, first: Cost, least: float) -> bool:
    """Return whether the busiest link ends earlier, by so much at least, or as early and all together do."""
    bar = 1 - least
    return found[0] < first[0] * bar or (found[0] <= first[0] and found[1] < first[1] * bar)
