"""From what was rehearsed to what a run will cost: bytes and messages, memory, seconds, dollars."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft.plan.candidates import Candidate
from weft.plan.machine import Machine
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.strategies.base import strategies

MEASURING = ("evaluate", "drift")
"""Purposes of what is sent to measure, not to train."""


@dataclass(frozen=True)
class Forecast:
    """What one configuration costs. An epoch is one after the first, which also brings what is sent once."""

    strategy: str
    exchange: str | None
    workers: int
    options: dict[str, Any]
    exact: bool
    bytes_per_epoch: int
    """All ranks and purposes together, evaluation too, as a run's report counts them."""
    messages_per_epoch: int
    training_bytes_per_epoch: int
    evaluation_bytes_per_epoch: int
    bytes_by_purpose: dict[str, int]
    messages_by_purpose: dict[str, int]
    bytes_by_pair: list[list[int]]
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
    estimated: bool = False
    """Whether it is extrapolated from statistics of a graph, not counted on one."""

    @property
    def fits(self) -> bool:
        """Whether no rank takes more than it may."""
        return self.peak_memory_bytes <= self.memory_limit_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def forecast(
    candidate: Candidate, ranks: Sequence[RankRehearsal], machine: Machine, memory: int | None = None
) -> Forecast:
    """Return what a configuration costs, from what its ranks rehearsed, on a machine.

    `memory` is what a worker may take, by default its share of what the machine has.
    """
    last = [rank.epochs[-1] for rank in ranks if rank.epochs]
    sent = _by_purpose(last, "bytes_sent")
    phases = _slowest(candidate, ranks, machine)
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
        bytes_per_epoch=sum(sent.values()),
        messages_per_epoch=sum(_by_purpose(last, "messages_sent").values()),
        training_bytes_per_epoch=sum(size for kind, size in sent.items() if kind not in MEASURING),
        evaluation_bytes_per_epoch=sum(sent[kind] for kind in MEASURING),
        bytes_by_purpose=dict(sent),
        messages_by_purpose=dict(_by_purpose(last, "messages_sent")),
        bytes_by_pair=_by_pair(last, len(ranks)),
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
    )


def _by_purpose(events: Iterable[dict[str, Any]], what: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in events:
        for volume in event["volumes"]:
            if volume[what]:
                found[volume["kind"]] += volume[what]
    return found


def _by_pair(events: Sequence[dict[str, Any]], size: int) -> list[list[int]]:
    pairs = [[0] * size for _ in range(size)]
    for event in events:
        for volume in event["volumes"]:
            pairs[event["rank"]][volume["peer"]] += volume["bytes_sent"]
    return pairs


def _slowest(candidate: Candidate, ranks: Sequence[RankRehearsal], machine: Machine) -> dict[str, float]:
    """Return the seconds of the phases of the rank whose epoch takes longest."""
    each = [_phases(candidate, rank, machine) for rank in ranks]
    return max(each, key=lambda phases: sum(phases.values()))


def _phases(candidate: Candidate, rank: RankRehearsal, machine: Machine) -> dict[str, float]:
    workers = candidate.workers
    phases = {name: machine.seconds(work, workers) for name, work in rank.work[-1].items()}
    if strategies[candidate.strategy].in_batches:
        phases["batches"] = machine.sampling(rank.work[-1], workers)
    phases = {name: value for name, value in phases.items() if value}
    if rank.epochs:
        working = sum(value for name, value in phases.items() if name != "evaluate")
        phases["exchange"] = _exposed(candidate, rank.epochs[-1], machine, working)
        phases["evaluate"] = phases.get("evaluate", 0.0) + _travel(rank.epochs[-1], machine, MEASURING)
    return phases


def _exposed(candidate: Candidate, event: dict[str, Any], machine: Machine, working: float) -> float:
    """Return the seconds that a rank waits for what it trains with: all, or what its work does not hide."""
    hidden = candidate.cost.overlaps
    kinds = {volume["kind"] for volume in event["volumes"]} - set(MEASURING)
    beside = _travel(event, machine, [kind for kind in kinds if kind in hidden])
    return _travel(event, machine, [kind for kind in kinds if kind not in hidden]) + max(
        0.0, beside - working
    )


def _travel(event: dict[str, Any], machine: Machine, kinds: Iterable[str]) -> float:
    chosen = set(kinds)
    held = [volume for volume in event["volumes"] if volume["kind"] in chosen]
    moved = sum(max(volume["bytes_sent"], volume["bytes_received"]) for volume in held)
    return machine.travel(moved, sum(volume["messages_sent"] for volume in held))
