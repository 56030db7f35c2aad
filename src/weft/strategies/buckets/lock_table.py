"""Which worker has which partitions, where workers take buckets as they come: PyTorch-BigGraph's lock server.

The table is a value in the store of the run that workers change in turn; none of them serves the others. A
worker that asks gets a visit without a partition that another one trains, and rather one whose partitions it
has already. Until each partition was trained, a visit has one that was: else parts of the rows would be
learned in spaces of their own.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.comm.shared_value import SharedValue
from weft.strategies.buckets.orders import Visit


@dataclass(frozen=True)
class Done:
    """A visit that was trained."""

    visit: int
    known: int
    """How many others were done when its relations were read."""
    waited: float
    """Seconds in which its worker waited for partitions that others had."""


@dataclass(eq=False)
class Handed:
    """What was given out of an epoch so far: visits by their numbers."""

    taken: list[tuple[int, int]] = field(default_factory=list)
    """(visit, rank) in the order of being taken"""
    done: list[Done] = field(default_factory=list)
    """in the order of being finished"""

    @classmethod
    def of(cls, value: Any) -> "Handed":
        """Return what `told` gave."""
        held = {"taken": [], "done": []} if value is None else value
        return cls([(visit, rank) for visit, rank in held["taken"]], [Done(*each) for each in held["done"]])

    def told(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"taken": self.taken, "done": [(each.visit, each.known, each.waited) for each in self.done]}

    def ages(self) -> list[int]:
        """Return of each visit how many others were finished between its reading relations and its end."""
        return [number - each.known for number, each in enumerate(self.done)]


class LockTable:
    """The visits of an epoch as a worker takes them. `seen` are partitions that were trained before."""

    def __init__(
        self, shared: SharedValue, visits: Sequence[Visit], seen: Collection[int], *, rank: int
    ) -> None:
        self.shared, self.visits, self.rank = shared, visits, rank
        self._seen = frozenset(seen)

    def take(self, held: Collection[int]) -> int | None:
        """Take a visit that may be trained now, rather of partitions that are `held`; None: there is none.

        Partitions of a visit that this worker has not finished yet are its own, and count as trained.
        """
        return self.shared.change(lambda value: self._taken(Handed.of(value), held))

    def next(self, held: Collection[int]) -> int | None:
        """Take a visit as soon as there is one; None: all are taken, and others train the last ones."""
        found = self.shared.wait(lambda value: self._taken_or_over(Handed.of(value), held))
        return None if found < 0 else found

    def finish(self, visit: int, *, known: int, waited: float) -> None:
        """Let go of a visit's partitions, whose rows are in files."""

        def work(value: Any) -> tuple[Any, bool]:
            handed = Handed.of(value)
            handed.done.append(Done(visit, known, waited))
            return handed.told(), True

        self.shared.change(work)

    def handed(self) -> Handed:
        """Return what was given out so far."""
        return Handed.of(self.shared.read())

    def all_done(self) -> Handed:
        """Wait until every visit is finished, and return how it went."""

        def work(value: Any) -> tuple[Any, Handed | None]:
            handed = Handed.of(value)
            return handed.told(), handed if len(handed.done) == len(self.visits) else None

        return self.shared.wait(work)

    def _taken(self, handed: Handed, held: Collection[int]) -> tuple[Any, int | None]:
        found = choose(handed, self.visits, self._seen, rank=self.rank, held=held)
        if found is not None:
            handed.taken.append((found, self.rank))
        return handed.told(), found

    def _taken_or_over(self, handed: Handed, held: Collection[int]) -> tuple[Any, int | None]:
        if len(handed.taken) == len(self.visits):
            return handed.told(), -1
        return self._taken(handed, held)


def choose(
    handed: Handed, visits: Sequence[Visit], seen: Collection[int], *, rank: int, held: Collection[int]
) -> int | None:
    """Return the visit that a worker is given: that with most partitions it has, the first of several."""
    done, taken = {each.visit for each in handed.done}, {visit for visit, _ in handed.taken}
    running = [(visit, whose) for visit, whose in handed.taken if visit not in done]
    busy = {one for visit, whose in running if whose != rank for one in visits[visit].partitions}
    finished = [*done, *(visit for visit, whose in running if whose == rank)]
    trained = {*seen, *(one for visit in finished for one in visits[visit].partitions)}
    may = [
        number
        for number, visit in enumerate(visits)
        if number not in taken
        and not busy.intersection(visit.partitions)
        and (trained.intersection(visit.partitions) or not (taken or seen))
    ]
    return max(may, key=lambda number: len({*visits[number].partitions} & {*held}), default=None)
