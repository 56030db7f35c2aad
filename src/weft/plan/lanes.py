"""A rank's epoch as lanes: what it trains with, and threads beside that prepare the batches to come.

A rehearsal makes each batch where it is used. Here its stretches go to a lane of their own, bound to the
training by gates: a batch is used when it is made, and no more of them are made ahead than a run would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from weft.plan.clocked_epoch import ClockedEpoch, Gate, Leg, LegLane, RankSeconds
from weft.plan.machine import Machine
from weft.plan.rehearse.course import WAIT, Stretch
from weft.plan.rehearse.work import CountedWork
from weft.plan.travel import Travel
from weft.strategies.strategy_cost import Preparing


@dataclass(frozen=True)
class LaneStretch:
    """A stretch, and the gates about it."""

    stretch: Stretch
    passes: tuple[Gate, ...] = ()
    """What must have happened before it is begun."""
    opens: tuple[Gate, ...] = ()
    """What has happened when it is over."""


@dataclass(frozen=True)
class Lane:
    """What one thread of a rank does, one after the other."""

    rank: int
    stretches: list[LaneStretch] = field(default_factory=list)
    alone: bool = False
    """Whether it has one thread for its operators, whatever the rank has."""


def lanes_of(course: Sequence[Stretch], rank: int, preparing: Preparing | None = None) -> list[Lane]:
    """Return the lanes of a rank in an epoch, the one that trains first."""
    if preparing is None:
        return [Lane(rank, [LaneStretch(each) for each in course])]
    training = Lane(rank)
    makers = [Lane(rank, alone=True) for _ in range(preparing.threads)]
    number = 0
    for waiting, held in groupby(course, key=lambda each: each.phase == WAIT):
        if not waiting:
            training.stretches.extend(LaneStretch(each) for each in held)
            continue
        _ask(training, rank, number)
        makers[number % len(makers)].stretches.extend(_batch(list(held), rank, number, preparing))
        taken = Stretch(CountedWork(), phase=WAIT)
        training.stretches.append(LaneStretch(taken, (("made", rank, number),), (("taken", rank, number),)))
        number += 1
    return [training, *(each for each in makers if each.stretches)]


def _ask(training: Lane, rank: int, number: int) -> None:
    """Note that a batch is asked for when what was done before it is over."""
    if training.stretches:
        last = training.stretches[-1]
        training.stretches[-1] = replace(last, opens=(*last.opens, ("asked", rank, number)))


def _batch(held: list[Stretch], rank: int, number: int, preparing: Preparing) -> Iterator[LaneStretch]:
    """Give the stretches in which a batch is made, begun when there may be one more."""
    way, before = ("taken", 0) if preparing.together else ("asked", 1)
    gate = ((way, rank, number - preparing.ahead + before),) if number >= preparing.ahead else ()
    for place, each in enumerate(held):
        passes = gate if place == 0 else ()
        yield LaneStretch(each, passes, (("made", rank, number),) if place == len(held) - 1 else ())


def played(
    courses: Sequence[Sequence[Stretch]], machine: Machine, travel: Travel, preparing: Preparing | None = None
) -> list[RankSeconds]:
    """Return the seconds of each rank in an epoch, by the clock."""
    workers, lanes = len(courses), list[LegLane]()
    cores = machine.cores_among(workers)
    for rank, course in enumerate(courses):
        for lane in lanes_of(course, rank, preparing):
            threads = 1 if lane.alone else cores.threads
            lanes.append(LegLane(rank, [_leg(each, machine, threads) for each in lane.stretches], threads))
    return ClockedEpoch(lanes, travel, cores).run()


def _leg(given: LaneStretch, machine: Machine, threads: int) -> Leg:
    """Return a stretch with the seconds of what is computed in it, on a core for each thread."""
    seconds = machine.seconds(given.stretch.work, threads=threads)
    return Leg(given.stretch, {given.stretch.phase: seconds} if seconds else {}, given.passes, given.opens)
