"""What was counted of a configuration on a few workers: work, traffic between each pair, parts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.comm.plan import spread
from weft.exchanges.base import check_exchange, exchanges
from weft.graph.parts.partition import PartitionInfo
from weft.plan.candidates import Candidate
from weft.plan.forecast import MEASURING
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork

Label = tuple[str, int, str]
"""Purpose, number of the exchange in a step, direction."""
PHASES = ("forward", "backward")
"""Phases that layers are in; all others are between the passes."""
NOT_TRAINING = ("evaluate",)


@dataclass(frozen=True)
class Volumes:
    """Traffic of one label in an epoch, by pair."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    size: NDArray[np.float64]
    messages: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Bytes of all pairs."""
        return float(self.size.sum())

    def reductions(self, workers: int) -> int:
        """Return how many sums over all workers this is: a ring, each member to the next; 0: it is none."""
        ring = ((self.src + 1) % workers == self.dst).all() and len(self.src) == workers
        each = 2 * (workers - 1)
        even = bool(ring) and float(self.messages.max()) % each == 0
        return round(float(self.messages.max()) / each) if even else 0


@dataclass(frozen=True)
class HeldPart:
    """What a worker holds, as work is counted by it."""

    nodes: float
    edges: float
    halo: float


@dataclass(frozen=True)
class CountedRun:
    """An epoch of a configuration, as its rehearsal counted it."""

    workers: int
    steps: int
    parts: tuple[HeldPart, ...]
    """Of each worker."""
    work: tuple[Mapping[str, CountedWork], ...]
    """By phase, of each worker."""
    traffic: Mapping[Label, Volumes]
    overlaps: tuple[str, ...] = ()
    late: bool = False
    ahead: bool = False
    turns: bool = False
    sampled: Sequence[float] = field(default_factory=tuple)

    @property
    def halo_rows(self) -> float:
        """Rows of others, on all workers together."""
        return sum(each.halo for each in self.parts)


def counted(candidate: Candidate, ranks: Sequence[RankRehearsal], info: PartitionInfo | None) -> CountedRun:
    """Return what was counted, from the ranks of a rehearsal and the partition that they were given."""
    period = candidate.cost.period(candidate.section)
    if info is None:
        parts = [HeldPart(ranks[0].num_nodes, ranks[0].num_edges, 0)]
    else:
        parts = _held([HeldPart(each.nodes, each.edges, each.halo) for each in info.parts], candidate.workers)
    late = False
    if candidate.section.get("exchange") is not None:
        name, chosen = check_exchange(candidate.section["exchange"])
        late = not exchanges[name].waits and not exchanges[name].is_exact(chosen)
    return CountedRun(
        candidate.workers,
        ranks[0].steps,
        tuple(parts),
        tuple(_mean_work(rank, period) for rank in ranks),
        _traffic(ranks, period),
        candidate.cost.overlaps,
        late,
        candidate.cost.preparing(candidate.section, candidate.workers) is not None,
        candidate.cost.turns,
    )


def _held(parts: list[HeldPart], workers: int) -> list[HeldPart]:
    """Return what each worker has where it holds several parts: neighbours in number, as a run deals them."""
    found = [HeldPart(0, 0, 0)] * workers
    for part, owner in zip(parts, spread(len(parts), workers), strict=True):
        held = found[owner]
        found[owner] = HeldPart(held.nodes + part.nodes, held.edges + part.edges, held.halo + part.halo)
    return found


def _mean_work(rank: RankRehearsal, period: int) -> dict[str, CountedWork]:
    """Return the work of an epoch after the first, on the mean over a period."""
    found: dict[str, CountedWork] = defaultdict(CountedWork)
    for epoch in rank.work[-period:]:
        for phase, work in epoch.items():
            if phase not in NOT_TRAINING:
                found[phase].add(work)
    for work in found.values():
        for name, value in work.to_dict().items():
            setattr(work, name, value / period)
    return dict(found)


def _traffic(ranks: Sequence[RankRehearsal], period: int) -> dict[Label, Volumes]:
    held: dict[Label, dict[tuple[int, int], list[float]]] = defaultdict(
        lambda: defaultdict(lambda: [0.0, 0.0])
    )
    for number, rank in enumerate(ranks):
        for event in rank.epochs[-period:]:
            for volume in event["volumes"]:
                if volume["kind"] in MEASURING or not volume["bytes_sent"]:
                    continue
                label = volume["kind"], volume["slot"], volume["direction"]
                pair = held[label][number, volume["peer"]]
                pair[0] += volume["bytes_sent"] / period
                pair[1] += volume["messages_sent"] / period
    found = {}
    for label, pairs in held.items():
        src, dst = (np.array([pair[end] for pair in pairs], dtype=np.int64) for end in (0, 1))
        size, messages = (np.array([each[place] for each in pairs.values()]) for place in (0, 1))
        found[label] = Volumes(src, dst, size, messages)
    return found
