"""How many workers a run grows to: by a schedule, or for as long as more of them are worth what they cost.

Hydrozoa (Guo et al., 2022) adds workers while a run trains. Here their number changes no number of the run,
so progress is epochs, and the value of n workers that take t seconds an epoch is 1 / (t x cost), with a cost
of t x machines: twice as many are worth more where an epoch takes less than 1 / sqrt(2) of the time.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.comm.elastic.start import Size
from weft.comm.elastic.took import told_by_all
from weft.comm.run_store import RunStore

EPOCHS, SECONDS = 6, 3.0
"""How long a number of workers is measured at least."""


@dataclass(frozen=True)
class Wish:
    """How many workers are to train, and why."""

    workers: int
    why: str


class Grower:
    """Says when a run is to have another number of workers."""

    def __init__(
        self,
        size: Size,
        every: int | None,
        log: Path,
        machines: Callable[[int], int] = lambda workers: workers,
    ) -> None:
        """Twice as many after each `every` epochs; None: by what they are worth on so many `machines`."""
        self.size, self.every, self.log, self._machines = size, every, log, machines
        self._generation, self._wished = 0, size.least
        self._first: tuple[int, float] | None = None
        self._took: dict[int, float] = {}
        self._settled = False

    def look(self, store: RunStore, generation: int, members: Sequence[int]) -> Wish | None:
        """Return what is wished from now on, by what workers tell; None where nothing is new."""
        if generation != self._generation:
            self._generation, self._first = generation, None
        told = {} if self._settled else told_by_all(store, generation, sorted(members))
        if not told:
            return None
        latest = next(iter(told.values()))
        if self.every is not None:
            return self._scheduled(latest.epoch, self.every, len(members))
        if self._first is None:
            self._first = latest.epoch, latest.clock
            return None
        epochs, seconds = latest.epoch - self._first[0], latest.clock - self._first[1]
        if epochs < EPOCHS or seconds < SECONDS:
            return None
        self._first = None
        return self._valued(len(members), seconds / epochs)

    def _scheduled(self, epoch: int, every: int, workers: int) -> Wish | None:
        number = min(self.size.most, self.size.least * 2 ** min(epoch // every, 32))
        # Once: who dies or leaves later is replaced by --max-restarts alone.
        if number <= max(workers, self._wished):
            return None
        self._wished = number
        return self._kept(Wish(number, f"epoch {epoch} is over, and every {every} they are twice as many"))

    def _valued(self, workers: int, seconds: float) -> Wish | None:
        self._took[workers] = seconds
        best = max(sorted(self._took), key=self.value)
        self._settled = workers != best or workers == self.size.most
        if workers != best:
            share = self.value(workers) / self.value(best)
            return self._kept(Wish(best, f"{workers} are worth {share:.2f} of {best}, as 1 / (time x cost)"))
        if self._settled:
            return None
        told = f"an epoch of {workers} takes {seconds:.3g} s; more of them are tried"
        return self._kept(Wish(min(2 * workers, self.size.most), told))

    def value(self, workers: int) -> float:
        """Return what so many workers were worth, 1 / (time x cost), by the price of a machine."""
        return 1.0 / (self._took[workers] ** 2 * self._machines(workers))

    def _kept(self, wish: Wish) -> Wish:
        took = {str(workers): seconds for workers, seconds in sorted(self._took.items())}
        told = {"generation": self._generation, "workers": wish.workers, "why": wish.why, "took": took}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        return wish
