"""The board of a worker: rows that intervals hand out by epoch, versions of weights, and whose turn it is.

Whatever stands on it is never changed, only forgotten once nobody can ask for it. One interval computes at a
time (`Turns`); who waits lets the others go on, those that are behind first.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from weft.strategies.asynchronous.choices import Choice, ages_of, check_ages
from weft.strategies.asynchronous.order import OrderLog
from weft.strategies.asynchronous.turns import Place, Turns
from weft.strategies.pipeline.stage_model import Weights

What = Literal["features", "gradients"]
T = TypeVar("T")
_SPANS = 64
"""Epochs of intervals whose begin and end a run tells."""


class RowsKey(NamedTuple):
    """Rows of one call of a step from one source: an interval, or all other workers."""

    what: What
    slot: int
    source: int


class Ended(BaseException):
    """The run is over: an interval that waits stops here."""


class Learned(NamedTuple):
    """What one interval learned in an epoch."""

    loss: Tensor
    values: list[Tensor | None]
    """A gradient a weight; None where the loss does not reach it."""


class Board:
    """What the intervals of a worker tell each other. Every wait ends when the run does, or fails."""

    def __init__(self, intervals: int, choice: Choice, log: OrderLog, *, alone: bool = False) -> None:
        """`alone`: no other worker can keep weights waiting."""
        self.intervals, self.choice, self.log, self.alone = intervals, choice, log, alone
        self.rows: dict[RowsKey, dict[int, Tensor]] = {}
        self.versions: dict[int, Weights] = {}
        self.learned: dict[int, dict[int, Learned]] = {}
        """What intervals learned, by epoch and interval, until the weights have taken it."""
        self.ages: Counter[int] = Counter()
        """How many reads found rows of each age."""
        self.waited = 0.0
        """Seconds in which intervals stood waiting for rows, added up."""
        self.entered = -1
        """The furthest epoch that an interval has begun."""
        self.last = -1
        """The last epoch that may begin."""
        self._changed = Condition()
        self._turns = Turns(self._changed)
        self._places: dict[int, Place] = {}
        """How far each interval is."""
        self._taken = -1
        """The last epoch whose gradients the weights have been given, or soon are."""
        self._began: dict[int, float] = {}
        self._spans: list[tuple[int, int, float, float]] = []
        self._told = 0

    @contextmanager
    def away(self, interval: int) -> Iterator[None]:
        """Let others compute while this interval waits for something that is not on the board."""
        with self._changed:
            self._turns.give(interval)
        try:
            yield
        finally:
            with self._changed:
                self._turns.wait(interval, self._places[interval], lambda: True)

    # What is handed out

    def put(self, key: RowsKey, epoch: int, rows: Tensor) -> None:
        """Hand out the rows of an epoch."""
        with self._changed:
            self.rows.setdefault(key, {})[epoch] = rows
            self._turns.deal()

    def read(self, interval: int, epoch: int, what: What, slot: int, sources: Sequence[int]) -> list[Tensor]:
        """Return the rows of some sources, of the epochs that the form of asynchrony says.

        Those that are not as far yet go on first where the newest counts, or where other workers wait for
        rows: these leave once all intervals have made them.
        """
        keys = [RowsKey(what, slot, source) for source in sources]
        with self._changed:
            done = self._places.get(interval, (epoch, 0))[1]
            self._places[interval] = (epoch, done + 1)
            chosen = self._found(
                interval,
                lambda: self.choice.rows(interval, epoch, done, [[*self.rows.get(key, ())] for key in keys]),
            )
            check_ages(epoch, chosen, self.choice.oldest)
            self.ages.update(ages_of(epoch, chosen))
            self.log.write("read", interval, epoch, chosen)
            return [self.rows[key][one] for key, one in zip(keys, chosen)]

    # Epochs

    def enter(self, interval: int, epoch: int) -> tuple[int, Weights]:
        """Wait until an interval may begin an epoch, and it is its turn; until `leave` it computes alone.

        Returns the version of the weights, and these.
        """
        with self._changed:
            self._places[interval] = (epoch, 0)
            version = self._turns.wait(interval, (epoch, 0), lambda: self._let_in(interval, epoch))
            self._began[interval] = time.time()
            self.log.write("enter", interval, epoch, version)
            return version, self.versions[version]

    def leave(self, interval: int, epoch: int, learned: Learned) -> None:
        """Hand in what an interval learned in an epoch; the turn passes on when it asks for the next."""
        with self._changed:
            self.learned.setdefault(epoch, {})[interval] = learned
            if len(self._spans) < _SPANS:
                self._spans.append((interval, epoch, self._began.get(interval, 0.0), time.time()))
            self._changed.notify_all()

    def allow(self, last: int) -> None:
        """Let epochs begin up to `last`."""
        with self._changed:
            self.last = max(self.last, last)
            self._turns.deal()

    def hold(self) -> int:
        """Let no further epoch begin, and return the furthest that has."""
        with self._changed:
            self.last = self.entered
            return self.entered

    def taken(self, epoch: int) -> list[Learned]:
        """Wait until all intervals are done with an epoch; return what they learned, in their order."""
        with self._changed:
            self._until_complete(epoch)
            held = self.learned.pop(epoch)
            self._taken = epoch
            return [held[number] for number in range(self.intervals)]

    def completed(self, epoch: int) -> None:
        """Wait until all intervals are done with an epoch."""
        with self._changed:
            self._until_complete(epoch)

    def publish(self, version: int, weights: Weights) -> None:
        """Give out the weights that have seen so many epochs, and forget what nobody can ask for."""
        with self._changed:
            self.versions[version] = weights
            oldest = version - self.choice.oldest
            self.versions = {one: held for one, held in self.versions.items() if one >= min(oldest, version)}
            for key, held in self.rows.items():
                newest = max(held, default=0)
                self.rows[key] = {one: rows for one, rows in held.items() if one >= oldest or one == newest}
            self._turns.deal()

    @property
    def newest(self) -> int:
        """How many epochs the weights have seen."""
        return max(self.versions)

    # The end

    def end(self, why: BaseException) -> None:
        """Wake everybody who waits; the first reason is told."""
        with self._changed:
            self._turns.end(why)

    def check(self) -> None:
        """Raise what ended the run, where something did."""
        self._turns.check()

    def take_ages(self) -> dict[int, int]:
        """Return the reads at each age since the last call."""
        with self._changed:
            taken, self.ages = self.ages, Counter()
            return dict(sorted(taken.items()))

    def take_spans(self) -> list[tuple[int, int, float, float]]:
        """Return (interval, epoch, begin, end) of what ended since the last call; of the first ones alone."""
        with self._changed:
            told, self._told = self._told, len(self._spans)
            return self._spans[told:]

    def take_waited(self) -> float:
        """Return the seconds waited since the last call."""
        with self._changed:
            taken, self.waited = self.waited, 0.0
            return taken

    # Underneath, with the lock held

    def _let_in(self, interval: int, epoch: int) -> int | None:
        """Return the version that an interval begins with, None: not yet.

        Who is given the turn counts as in the epoch before its thread wakes: it begins whatever `hold` says.
        """
        version = self._opened(interval, epoch)
        if version is not None:
            self.entered = max(self.entered, epoch)
        return version

    def _opened(self, interval: int, epoch: int) -> int | None:
        if epoch > self.last or not self.versions or self._soon_newer(epoch):
            return None
        return self.choice.weights(interval, epoch, [*self.versions])

    def _soon_newer(self, epoch: int) -> bool:
        """Return whether nobody is late, and who is first to begin an epoch has newer weights in a moment."""
        if not (self.choice.fresh and self.alone and epoch > self.entered):
            return False
        return self._taken == self.newest or len(self.learned.get(self.newest, ())) == self.intervals

    def _until_complete(self, epoch: int) -> None:
        """Wait until all intervals are done with an epoch."""
        self.check()
        while len(self.learned.get(epoch, ())) < self.intervals:
            self._changed.wait()
            self.check()

    def _found(self, interval: int, found: Callable[[], T | None]) -> T:
        """Return what is found, once it is; others go on meanwhile, or before."""
        self.check()
        value = found()
        if value is not None and self.alone and not self.choice.fresh:
            return value
        began = time.perf_counter()
        waits = value is None
        value = self._turns.wait(interval, self._places[interval], found)
        self.waited += (time.perf_counter() - began) * waits
        return value


def summed(learned: Sequence[Learned]) -> tuple[Tensor, list[Tensor | None]]:
    """Return loss and gradients of all intervals together, added up in their order."""
    total: list[Tensor | None] = list(learned[0].values)
    for one in learned[1:]:
        total = [b if a is None else a if b is None else a + b for a, b in zip(total, one.values)]
    return torch.stack([one.loss for one in learned]).sum(), total


def told_ages(ages: dict[int, int]) -> dict[str, Any]:
    """Return ages as an event can hold them."""
    return {str(age): reads for age, reads in ages.items()}
