"""What a run did, read from its folder: bytes and messages, memory and seconds, by rank and epoch."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import FormatError
from weft.events import Event, read_events

EVALUATION = "evaluate"
Counts = dict[str, tuple[int, int]]
"""Bytes and messages that a rank sent, by purpose, slot, direction and peer."""


@dataclass(frozen=True)
class MeasuredRun:
    """What a run did."""

    sent: list[list[Counts]]
    """Of each rank, of each epoch."""
    seconds: list[list[Mapping[str, float]]]
    """Of each rank, of each epoch, by phase."""
    waits: list[list[float]]
    """Of each rank, of each epoch: the seconds of training in which it waited for others."""
    peaks: list[int]
    """The most bytes that each rank's process took."""

    @property
    def peak(self) -> int:
        """The most bytes that a process took."""
        return max(self.peaks)

    @property
    def epoch_seconds(self) -> float:
        """Of training, without evaluation: of the slowest rank, the median over all epochs but the first."""
        later = [
            max(sum(_training(phases).values()) for phases in epoch) for epoch in list(zip(*self.seconds))[1:]
        ]
        return statistics.median(later) if later else 0.0

    @property
    def working(self) -> list[float]:
        """Of each rank, the median seconds of an epoch in which it trained and did not wait for others."""
        return [
            statistics.median(
                max(0.0, sum(_training(phases).values()) - waited)
                for phases, waited in zip(seconds[1:] or seconds, waits[1:] or waits)
            )
            for seconds, waits in zip(self.seconds, self.waits)
        ]

    @property
    def phases(self) -> dict[str, float]:
        """The median seconds of each phase over all epochs but the first, of the rank that trains longest."""
        slowest = max(self.seconds, key=lambda held: sum(sum(_training(each).values()) for each in held[1:]))
        names = {name for phases in slowest[1:] for name in phases}
        return {
            name: statistics.median(phases.get(name, 0.0) for phases in slowest[1:]) for name in sorted(names)
        }


def read_measured(folder: Path) -> MeasuredRun:
    """Return what a run did; the folder holds the events of each of its ranks."""
    first = list(read_events(folder / "events.jsonl"))
    others = sorted(folder.glob("events-rank*.jsonl"), key=lambda path: int(path.stem[len("events-rank") :]))
    ranks = [first, *(list(read_events(path)) for path in others)]
    traffic = [_of(events, "traffic") for events in ranks]
    if traffic[0]:
        return MeasuredRun(
            [[counts_of(event) for event in events] for events in traffic],
            [[event["seconds_of_phases"] for event in events] for events in traffic],
            [[training_waits(event) for event in events] for events in traffic],
            [max(event["peak_memory_bytes"] for event in events) for events in traffic],
        )
    epochs, ends = _of(first, "epoch"), _of(first, "end")
    if not epochs or not ends:
        raise FormatError(f"{folder}: expected the events of a run that has ended")
    return MeasuredRun(
        [[{} for _ in epochs]],
        [[each["seconds"] for each in epochs]],
        [[0.0 for _ in epochs]],
        [ends[-1]["summary"]["peak_memory_bytes"]],
    )


def counts_of(event: Event) -> Counts:
    """Return the bytes and messages of an epoch, by what they were for."""
    return {
        f"{each['kind']} {each['slot']} {each['direction']} to {each['peer']}": (
            each["bytes_sent"],
            each["messages_sent"],
        )
        for each in event["volumes"]
        if each["bytes_sent"] or each["messages_sent"]
    }


def differing(planned: Sequence[Counts], counted: Sequence[Counts]) -> dict[str, tuple[int, int]]:
    """Return by how many bytes and messages epochs differ, by what they were for; empty where they agree."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for plan, count in zip(planned, counted):
        for name in {*plan, *count}:
            for place, (one, other) in enumerate(zip(plan.get(name, (0, 0)), count.get(name, (0, 0)))):
                found[name][place] += abs(one - other)
    return {name: (size, number) for name, (size, number) in found.items() if size or number}


def _of(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def training_waits(event: Event) -> float:
    """Return the seconds of an epoch in which a rank waited within the phases of its training."""
    kinds = (EVALUATION, "drift", "control")  # what is agreed on between phases is of none of them
    return float(sum(each["exposed"] for each in event["seconds"] if each["kind"] not in kinds))


def _training(phases: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in phases.items() if name != EVALUATION}
