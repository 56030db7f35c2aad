"""What each worker computes and sends on any number of workers: as counted where it was, else by laws.

Work of a phase is a line over the nodes, edges and halo rows of a worker and a constant, with no weight below
zero, fitted to all workers of all rehearsals. Traffic of a purpose is proportional to what it followed best
in the rehearsals: halo rows, cut edges, or the number of workers but one, as sums over all workers and
broadcasts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from weft.draw import Stream, fold, uniform
from weft.errors import InputError
from weft.plan.rehearse.work import CountedWork
from weft.simulate.counted import CountedRun, HeldPart, Label, Volumes
from weft.simulate.scaling_law import ScalingLaw

BUNDLES = 16
"""Peers that flows of one worker go to, where a law says that there are more: bytes of many in a few."""
_FEATURES = 4


@dataclass(frozen=True)
class DrawnParts:
    """What a number of workers has, by a law: the parts, and what a purpose of traffic follows."""

    parts: tuple[HeldPart, ...]
    drivers: Mapping[str, float]
    peers: int


@dataclass(frozen=True)
class TrafficLaw:
    """Bytes of one purpose in an epoch."""

    driver: str
    each: float
    """Bytes for one of what drives it."""
    misfit: float
    """How far the worst rehearsal was from it, 0 … 1."""
    calls: float
    """Times an epoch that a worker sends to each of its peers; of sums, sums."""
    joint: bool


@dataclass(frozen=True)
class Workload:
    """All that is known of one configuration, whatever the number of its workers."""

    runs: Mapping[int, CountedRun]
    """By the number of workers."""
    law: ScalingLaw | None
    num_nodes: int
    num_edges: int

    @property
    def largest(self) -> CountedRun:
        """The rehearsal on most workers."""
        return self.runs[max(self.runs)]

    @property
    def follows_halo(self) -> bool:
        """Whether some of its traffic goes by halo rows, whose law has bounds."""
        return max(self.runs) > 1 and any(law.driver == "halo" for law in self.laws().values())

    def at(self, workers: int, *, scale: float = 1.0, side: str = "value", seed: int = 0) -> CountedRun:
        """Return an epoch on so many workers; `scale` is the size of the graph against the one at hand.

        `side` takes the lower or the upper bound of the law's halo rows instead of the value.
        """
        if workers in self.runs and scale == 1.0:
            return self.runs[workers]
        if self.law is None or max(self.runs) < 2:
            known = ", ".join(map(str, sorted(self.runs)))
            raise InputError(
                f"{workers} workers: this strategy is simulated where it is rehearsed, on {known}"
            )
        drawn = self._drawn(workers, scale, side, seed)
        model = self.largest
        work = tuple(self._work(drawn.parts))
        traffic = {
            label: _volumes(law, drawn, workers, seed) for label, law in self.laws().items() if workers > 1
        }
        return CountedRun(
            workers,
            max(1, round(model.steps * scale)),
            drawn.parts,
            work,
            traffic,
            model.overlaps,
            model.late,
            model.ahead,
            model.turns,
        )

    def drivers(self, run: CountedRun) -> dict[str, float]:
        """Return what traffic may follow, of a rehearsal."""
        assert self.law is not None
        return _drivers(run.workers, run.halo_rows, self.law.cut_share(run.workers) * self.num_edges)

    def laws(self) -> dict[Label, TrafficLaw]:
        """Return what each purpose of traffic follows."""
        runs = [run for count, run in sorted(self.runs.items()) if count > 1]
        found = {}
        for label in self.largest.traffic:
            held = [run for run in runs if label in run.traffic]
            options = []
            for driver in ("halo", "cut", "others"):
                each = np.array([run.traffic[label].total / self.drivers(run)[driver] for run in held])
                middle = float(each.mean())
                options.append((float(np.abs(each / middle - 1).max()), driver, float(each[-1])))
            misfit, driver, each_one = min(options, key=lambda option: round(option[0], 3))
            found[label] = TrafficLaw(driver, each_one, misfit, *_calls(self.largest, label))
        return found

    def _drawn(self, workers: int, scale: float, side: str, seed: int) -> DrawnParts:
        assert self.law is not None
        halo = getattr(self.law.halo_rows(workers), side) * scale if workers > 1 else 0.0
        totals = {"nodes": self.num_nodes * scale, "edges": self.num_edges * scale, "halo": halo}
        picked = uniform(fold(seed, Stream.SIMULATE, 1), np.arange(workers))
        columns = []
        for name, total in totals.items():
            spread = np.array(self.law.spread(name)) if workers > 1 else np.ones(1)
            ratio = spread[(picked * len(spread)).astype(np.int64)]
            columns.append(ratio / max(ratio.sum(), 1e-12) * total)
        parts = tuple(HeldPart(*map(float, each)) for each in zip(*columns))
        cut = self.law.cut_share(workers) * self.num_edges * scale if workers > 1 else 0.0
        peers = self.law.peers(workers) if workers > 1 else 0
        return DrawnParts(parts, _drivers(workers, halo, cut), peers)

    def _work(self, parts: Sequence[HeldPart]) -> list[dict[str, CountedWork]]:
        """Return the work of each worker, by the line through what the rehearsals counted."""
        asked = _design(parts)
        found: list[dict[str, CountedWork]] = [{} for _ in parts]
        seen = [(part, work) for run in self.runs.values() for part, work in zip(run.parts, run.work)]
        for phase in sorted({phase for _, work in seen for phase in work}):
            held = [(part, work[phase].to_dict()) for part, work in seen if phase in work]
            design = _design([part for part, _ in held])
            columns = {
                name: asked @ nonnegative(design, np.array([counts[name] for _, counts in held], dtype=float))
                for name in held[0][1]
            }
            for place in range(len(parts)):
                found[place][phase] = CountedWork(**{name: each[place] for name, each in columns.items()})
        return found


def nonnegative(design: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, none below zero, with the least squares of errors relative to what was counted.

    >>> nonnegative(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]), np.array([2.0, 4.0, 5.0])).tolist()[1]
    0.0
    """
    size = np.maximum(np.abs(design).max(0), 1e-12)
    weight = 1 / np.maximum(wanted, max(wanted.max() * 1e-3, 1e-12))
    rows: NDArray[np.float64] = design / size * weight[:, None]
    best, least = np.zeros(design.shape[1]), np.inf
    # The weights that are not zero are some of few: all choices are tried, those of fewer first.
    for count in range(1, design.shape[1] + 1):
        for chosen in combinations(range(design.shape[1]), count):
            found = np.linalg.lstsq(rows[:, chosen], wanted * weight, rcond=1e-9)[0]
            off = float(((rows[:, chosen] @ found - wanted * weight) ** 2).sum())
            if (found >= 0).all() and off < least * (1 - 1e-6) - 1e-12:
                best, least = np.zeros(design.shape[1]), off
                best[list(chosen)] = found
    weights: NDArray[np.float64] = best / size
    return weights


def _design(parts: Sequence[HeldPart]) -> NDArray[np.float64]:
    rows = [[each.nodes, each.edges, each.halo, 1.0] for each in parts]
    return np.array(rows).reshape(len(parts), _FEATURES)


def _drivers(workers: int, halo: float, cut: float) -> dict[str, float]:
    return {"halo": max(halo, 1e-9), "cut": max(cut, 1e-9), "others": max(workers - 1, 1e-9)}


def _calls(run: CountedRun, label: Label) -> tuple[float, bool]:
    """Return how often an epoch a purpose is sent, and whether it is a sum over all workers."""
    held = run.traffic[label]
    sums = held.reductions(run.workers) if run.workers > 2 else 0
    return (sums, True) if sums else (float(held.messages.max()), False)


def _volumes(law: TrafficLaw, drawn: DrawnParts, workers: int, seed: int) -> Volumes:
    """Return the traffic of a purpose by pair: a ring, or each worker to some others."""
    total = law.each * drawn.drivers[law.driver]
    own = np.arange(workers)
    if law.joint:
        messages = np.full(workers, law.calls * 2 * (workers - 1))
        return Volumes(own, (own + 1) % workers, np.full(workers, total / workers), messages)
    peers = drawn.peers if law.driver == "halo" else workers - 1
    flows = min(peers, BUNDLES if workers <= 2000 else BUNDLES // 2, workers - 1)
    share = np.array([each.halo for each in drawn.parts]) if law.driver == "halo" else np.ones(workers)
    share = share / max(share.sum(), 1e-12)
    steps = 1 + np.argsort(uniform(fold(seed, Stream.SIMULATE, 2), np.arange(workers - 1)))[:flows]
    src, dst = np.repeat(own, flows), ((own[:, None] + steps) % workers).ravel()
    # What a worker takes is by its own halo.
    size = total * share[dst] / flows
    return Volumes(src, dst, size, np.full(len(src), law.calls * peers / flows))
