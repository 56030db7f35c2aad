"""From what was rehearsed to what a run will cost: bytes and messages, memory, seconds, dollars."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from weft.plan.candidates import Candidate
from weft.plan.clocked_epoch import RankSeconds
from weft.plan.lanes import played
from weft.plan.machine import Machine
from weft.plan.rehearse.course import BETWEEN
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.travel import Travel
from weft.plan.wires import Wires
from weft.train.saved.prices import value_of

NOT_MEASURED = "not measured"
MEASURING = ("evaluate", "drift")
"""Purposes of what is sent to measure, not to train."""


@dataclass(frozen=True)
class Forecast:
    """What one configuration costs.

    An epoch is the mean of those after the first, which also brings what is sent once: over a whole period
    where a run sends more in some epochs than in others.
    """

    strategy: str
    exchange: str | None
    workers: int
    options: dict[str, Any]
    exact: bool
    bytes_per_epoch: float
    """All ranks and purposes together, evaluation too, as a run's report counts them."""
    messages_per_epoch: float
    training_bytes_per_epoch: float
    evaluation_bytes_per_epoch: float
    bytes_by_purpose: dict[str, float]
    messages_by_purpose: dict[str, float]
    bytes_by_pair: list[list[float]]
    """From each rank (row) to each (column)."""
    bytes_of_epochs: list[int]
    """Of every epoch that was rehearsed, from the first on."""
    messages_of_epochs: list[int]
    peak_memory_bytes: int
    """Of the rank that holds most."""
    peak_memory_by_rank: list[int]
    memory_limit_bytes: int
    """What a worker may take: as the user said, or its share of its machine's memory."""
    epoch_seconds: float
    """One epoch of training, without evaluation."""
    evaluation_seconds: float
    seconds_by_phase: dict[str, float]
    """Of the slowest rank."""
    dollars_per_epoch: float | None
    accuracy_cost: list[dict[str, Any]] | str | None = None
    """What it was measured to cost in accuracy, with options, graph and source; None: it is exact."""
    period: int = 1
    """Epochs after which what is sent repeats itself."""
    estimated: bool = False
    """Whether it is extrapolated from statistics of a graph, not counted on one."""

    @property
    def fits(self) -> bool:
        """Whether no rank takes more than it may."""
        return self.peak_memory_bytes <= self.memory_limit_bytes

    @property
    def value_per_epoch(self) -> float | None:
        """What an epoch is worth, 1 / (time x cost), by the user's prices: as a run tells of itself."""
        if self.dollars_per_epoch is None:
            return None
        return value_of(self.epoch_seconds + self.evaluation_seconds, self.dollars_per_epoch)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "value_per_epoch": self.value_per_epoch}


def forecast(
    candidate: Candidate,
    ranks: Sequence[RankRehearsal],
    machine: Machine,
    wires: Wires,
    memory: int | None = None,
) -> Forecast:
    """Return what a configuration costs, from what its ranks rehearsed, on a machine and its links.

    `memory` is what a worker may take, by default its share of what the machine has.
    """
    sent = _by_purpose(candidate, ranks, "bytes_sent")
    messages = _by_purpose(candidate, ranks, "messages_sent")
    phases = _slowest(candidate, ranks, machine, Travel(wires))
    evaluation = phases.pop("evaluate", 0.0)
    seconds = sum(phases.values())
    epochs = len(ranks[0].epochs)
    peaks = [machine.base_bytes(candidate.workers) + rank.peak for rank in ranks]
    return Forecast(
        candidate.strategy,
        candidate.exchange,
        candidate.workers,
        {name: value for name, value in candidate.section.items() if name not in ("name", "exchange")},
        candidate.cost.is_exact(candidate.section),
        bytes_per_epoch=_whole(sum(sent.values())),
        messages_per_epoch=_whole(sum(messages.values())),
        training_bytes_per_epoch=_whole(sum(size for kind, size in sent.items() if kind not in MEASURING)),
        evaluation_bytes_per_epoch=_whole(sum(sent.get(kind, 0) for kind in MEASURING)),
        bytes_by_purpose={kind: _whole(size) for kind, size in sent.items()},
        messages_by_purpose={kind: _whole(number) for kind, number in messages.items()},
        bytes_by_pair=_by_pair(candidate, ranks),
        bytes_of_epochs=[
            sum(rank.epochs[number]["bytes_sent"] for rank in ranks) for number in range(epochs)
        ],
        messages_of_epochs=[
            sum(rank.epochs[number]["messages"] for rank in ranks) for number in range(epochs)
        ],
        peak_memory_bytes=max(peaks),
        peak_memory_by_rank=peaks,
        memory_limit_bytes=machine.room(candidate.workers) if memory is None else memory,
        epoch_seconds=seconds,
        evaluation_seconds=evaluation,
        seconds_by_phase=phases,
        dollars_per_epoch=machine.dollars(seconds + evaluation, candidate.workers),
        accuracy_cost=_accuracy_cost(candidate),
        period=candidate.cost.period(candidate.section),
    )


def _accuracy_cost(candidate: Candidate) -> list[dict[str, Any]] | str | None:
    """Return what was measured of an approximation, or that nothing was; None where it is exact."""
    if candidate.cost.is_exact(candidate.section):
        return None
    return [each.to_dict() for each in candidate.cost.score_costs(candidate.section)] or NOT_MEASURED


def _volumes(
    candidate: Candidate, ranks: Sequence[RankRehearsal]
) -> Iterator[tuple[int, dict[str, Any], Fraction]]:
    """Give the rank, what it sent, and the share of it that an epoch has, over one whole period."""
    count = candidate.cost.period(candidate.section)
    for number, rank in enumerate(ranks):
        for event in rank.epochs[-count:]:
            last = event is rank.epochs[-1]
            for volume in event["volumes"]:
                share = _share(candidate, volume["kind"], count, last=last)
                if share:
                    yield number, volume, share


def _share(candidate: Candidate, kind: str, count: int, *, last: bool) -> Fraction:
    """Return how much of what an epoch of a period does falls to one epoch of a run.

    The last one is evaluated, whichever else are: it stands for all evaluations.
    """
    if kind == "evaluate":
        return Fraction(int(last), candidate.resolved.settings.eval_every)
    return Fraction(1, count)


def _whole(value: Fraction | int) -> float:
    """Return a mean as a whole number where it is one."""
    return int(value) if value == int(value) else float(value)


def _by_purpose(candidate: Candidate, ranks: Sequence[RankRehearsal], what: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = defaultdict(Fraction)
    for _, volume, share in _volumes(candidate, ranks):
        if volume[what]:
            found[volume["kind"]] += share * volume[what]
    return found


def _by_pair(candidate: Candidate, ranks: Sequence[RankRehearsal]) -> list[list[float]]:
    pairs = [[Fraction()] * len(ranks) for _ in ranks]
    for rank, volume, share in _volumes(candidate, ranks):
        pairs[rank][volume["peer"]] += share * volume["bytes_sent"]
    return [[_whole(size) for size in row] for row in pairs]


def _slowest(
    candidate: Candidate, ranks: Sequence[RankRehearsal], machine: Machine, travel: Travel
) -> dict[str, float]:
    """Return the seconds of the phases of an epoch of the slowest rank, on the mean over one whole period."""
    count = candidate.cost.period(candidate.section)
    each: list[dict[str, float]] = [defaultdict(float) for _ in ranks]
    for place in range(-count, 0):
        for found, phases in zip(each, _phases(candidate, ranks, machine, travel, place)):
            for name, seconds in phases.items():
                found[name] += seconds * float(_share(candidate, name, count, last=place == -1))
    slowest: dict[str, float] = max(each, key=_all_seconds)
    return dict(slowest)  # a plain one: older Pythons cannot copy a defaultdict in a dataclass


def _all_seconds(phases: Mapping[str, float]) -> float:
    return sum(phases.values())


def _phases(
    candidate: Candidate, ranks: Sequence[RankRehearsal], machine: Machine, travel: Travel, place: int
) -> list[dict[str, float]]:
    """Return the seconds of the phases of each rank, in one of the epochs that were rehearsed."""
    preparing = candidate.cost.preparing(candidate.section, candidate.workers)
    courses = [rank.courses[place] for rank in ranks]
    told = [_told(each) for each in played(courses, machine, travel, preparing)]
    for phases in told:
        phases["exchange"] += machine.lag_among(machine.on_one(candidate.workers))
    return told


def _told(spent: RankSeconds) -> dict[str, float]:
    """Return the seconds of phases, those in which a rank waits to train apart; between them none count."""
    phases = {name: value for name, value in spent.working.items() if name != BETWEEN}
    phases["exchange"] = 0.0
    for (phase, kind), seconds in spent.waiting.items():
        if phase != BETWEEN:
            name = phase if phase in MEASURING else kind if kind in MEASURING else "exchange"
            phases[name] = phases.get(name, 0.0) + seconds
    return phases
