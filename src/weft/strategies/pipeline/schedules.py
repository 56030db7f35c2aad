"""In which order a worker of a stage runs its micro-batches: a list of jobs, known before anything runs.

`gpipe` runs all forwards of a step, then all backwards, then updates. `1f1b` fills the pipeline, then takes
one forward and one backward by turns and updates after each, and drains at the end of an epoch.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from weft.strategies.pipeline.division import StageDivision

ScheduleName = Literal["gpipe", "1f1b"]


class Job(NamedTuple):
    """One thing that a worker does."""

    kind: Literal["forward", "backward", "update"]
    number: int
    """The micro-batch; of an update, which one of the round of micro-batches it is."""


def jobs_of(schedule: ScheduleName, division: StageDivision, rank: int, count: int) -> list[Job]:
    """Return what a worker does with `count` micro-batches, in its order."""
    stage, replica = division.place(rank)
    own = range(replica, count, division.replicas[stage])
    if schedule == "gpipe":
        runs = [*(Job("forward", m) for m in own), *(Job("backward", m) for m in own)]
        return [*runs, Job("update", 0)]
    return _one_by_one(own, rounds=-(-count // division.replicas[stage]), depth=division.depths[stage])


def _one_by_one(own: Sequence[int], *, rounds: int, depth: int) -> list[Job]:
    """Return fill, steady state and drain; in the last round a worker may have none to update by."""
    jobs: list[Job] = []
    for turn in range(rounds + depth - 1):
        if turn < len(own):
            jobs.append(Job("forward", own[turn]))
        back = turn - depth + 1
        if 0 <= back < len(own):
            jobs.append(Job("backward", own[back]))
        if 0 <= back < rounds:
            jobs.append(Job("update", back))
    return jobs


def version_of(division: StageDivision, stage: int, micro: int) -> int:
    """Return how many updates a stage has made when it begins a micro-batch of `1f1b`."""
    return max(0, micro // division.replicas[stage] - division.depths[stage] + 1)


def bubble(stages: int, micro_batches: int) -> float:
    """Return the share of time in which stages of equal work have none: (K - 1) / (M + K - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)
