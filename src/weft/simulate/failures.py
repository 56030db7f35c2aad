"""A run among failures: epochs, checkpoints, restarts, and workers that come and go, as events in time.

What dies takes with it all that was done since the last checkpoint, the epoch under way included. Workers
that leave with a warning do so at the end of an epoch, with nothing lost; parts go to those that stay, each
of which computes its parts one after the other, and come back with them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.draw import Stream, exact_log, fold, uniform

_MOST = 1000
"""Times that a run may be as long as without failures, before it is said never to end."""


@dataclass(frozen=True)
class RunPlan:
    """A run of many epochs."""

    epochs: int
    epoch_seconds: float
    checkpoint_every: int = 1
    """Epochs from one checkpoint to the next."""
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0
    """From a failure until the epoch after the last checkpoint begins again."""
    workers: int = 1
    """Which is also the number of parts."""
    handing_seconds: float = 0.0
    """To hand parts over, where workers come or go."""


@dataclass(frozen=True)
class RunTold:
    """What came of it."""

    seconds: float
    training: float
    """Seconds of epochs that count."""
    lost: float
    """Seconds of work that was done again, or was under way when something failed."""
    checkpoints: float
    restarts: float
    handing: float
    failures: int
    changes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def played_run(
    plan: RunPlan, failures: Sequence[float] = (), changes: Sequence[tuple[float, int]] = ()
) -> RunTold:
    """Return what a run comes to that fails at these seconds of its life.

    `changes` are moments with the number of workers that there are from then on; it takes effect when the
    epoch is over.

    >>> played_run(RunPlan(4, 10.0, checkpoint_every=2), failures=[35.0]).seconds
    55.0
    """
    now = training = lost = checkpoints = restarts = handing = 0.0
    done = saved = count = changed = 0
    ahead, coming, workers = list(failures), list(changes), plan.workers
    since: list[float] = []  # of the epochs after the last checkpoint
    bound = _MOST * max(1.0, plan.epochs * plan.epoch_seconds)
    while done < plan.epochs and now < bound:
        while coming and coming[0][0] <= now:
            wanted = max(1, coming.pop(0)[1])
            if wanted != workers:
                workers, changed = wanted, changed + 1
                now, handing = now + plan.handing_seconds, handing + plan.handing_seconds
        epoch = plan.epoch_seconds * -(-plan.workers // workers)
        due = (done + 1) % plan.checkpoint_every == 0
        ends = now + epoch + (plan.checkpoint_seconds if due else 0.0)
        if ahead and ahead[0] < ends:
            fails = max(now, ahead.pop(0))
            count += 1
            lost += fails - now + sum(since)
            training -= sum(since)
            now, restarts = fails + plan.restart_seconds, restarts + plan.restart_seconds
            done, since = saved, []
            continue
        done, now, training = done + 1, ends, training + epoch
        since.append(epoch)
        if due:
            saved, since, checkpoints = done, [], checkpoints + plan.checkpoint_seconds
    return RunTold(
        now if now < bound else np.inf, training, lost, checkpoints, restarts, handing, count, changed
    )


def failure_times(an_hour: float, seconds: float, seed: int = 0) -> list[float]:
    """Return the moments of failures that come at random, so many an hour, within some seconds."""
    if not an_hour:
        return []
    found: list[float] = []
    now, number = 0.0, 0
    key = fold(seed, Stream.SIMULATE)
    while now < seconds and number < 100_000:
        chance = uniform(key, np.arange(1), number) + 2.0**-33
        now, number = now - float(exact_log(chance)[0]) * 3600 / an_hour, number + 1
        found.append(now)
    return found


def coming_and_going(
    workers: int, least: int, leave_an_hour: float, away: float, seconds: float, seed: int = 0
) -> list[tuple[float, int]]:
    """Return moments and numbers of workers: each leaves so often an hour and is away for some seconds."""
    leaving = failure_times(leave_an_hour * workers, seconds, seed + 1)
    there = workers
    moves = sorted([(when, -1) for when in leaving] + [(when + away, 1) for when in leaving])
    found = []
    for when, change in moves:
        there += change
        found.append((when, min(workers, max(least, there))))
    return found
