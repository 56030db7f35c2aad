"""Which epoch's rows an interval reads, and which version of the weights it begins an epoch with.

All forms stand behind one gate: an interval begins epoch e when the weights have taken the gradients of all
intervals before epoch e - s, so no two are further than s epochs apart. Behind it they differ:

- `Exactly` reads rows of epoch e - s and weights that have seen e - s epochs: a function of the recipe alone.
- `Newest` reads what is there, as Dorylus does, but nothing older than s epochs: who would read rows of an
  interval that is s epochs behind waits until it has come to this layer. Who is behind goes first, and
  weights are chosen when an interval begins to compute: what is old is so because someone is late.
- `Replayed` reads what a run that is told in a file read.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft.errors import FormatError, TrainingError
from weft.strategies.asynchronous.order import Order

Epochs = Sequence[int]


def oldest_of(staleness: int) -> int:
    """Return the age in epochs that no row may exceed which is read where nobody waits for the newest.

    Who begins epoch e knows that all have ended epoch e - s - 1. Whoever is furthest behind, in epoch m, asks
    for rows of epoch m - s at least, and all have made those of m - 1: with s >= 1 it never waits, so waiting
    ends. With s = 0 all are in one epoch, and whoever comes to a layer first reads rows of the epoch before.
    """
    return max(staleness, 1)


class Choice(Protocol):
    """Decides what is read of what is there."""

    oldest: int
    """The age in epochs that nothing that is read may exceed."""
    fresh: bool
    """Whether it takes what is newest, so that those that are behind had better go first."""

    def rows(self, interval: int, epoch: int, place: int, there: Sequence[Epochs]) -> list[int] | None:
        """Return the epoch to read of each source, of those that are there; None: wait for more.

        `place` counts the reads of the interval in the epoch from 0.
        """

    def weights(self, interval: int, epoch: int, there: Epochs) -> int | None:
        """Return the version to begin an epoch with, of those that are there; None: wait."""


class Exactly:
    """Rows and weights of exactly `staleness` epochs before; of the first epoch until there are some."""

    fresh = False

    def __init__(self, staleness: int) -> None:
        self.staleness = self.oldest = staleness

    def rows(self, interval: int, epoch: int, place: int, there: Sequence[Epochs]) -> list[int] | None:
        """Return the same epoch for all, once all have it."""
        wanted = max(0, epoch - self.staleness)
        return [wanted] * len(there) if all(wanted in held for held in there) else None

    def weights(self, interval: int, epoch: int, there: Epochs) -> int | None:
        """Return the version that has seen so many epochs."""
        wanted = max(0, epoch - self.staleness)
        return wanted if wanted in there else None


class Newest:
    """Whatever is there; in its first epoch an interval waits for what nobody has made yet."""

    fresh = True

    def __init__(self, staleness: int) -> None:
        self.staleness, self.oldest = staleness, oldest_of(staleness)

    def rows(self, interval: int, epoch: int, place: int, there: Sequence[Epochs]) -> list[int] | None:
        """Return the newest of each; wait for what would be too old, or is still on its way."""
        newest = [max(held, default=-1) for held in there]
        return newest if all(one >= max(0, epoch - self.oldest) for one in newest) else None

    def weights(self, interval: int, epoch: int, there: Epochs) -> int | None:
        """Return the newest version, where it is new enough to begin at all."""
        return max(there) if epoch - self.staleness <= max(there) else None


class Replayed:
    """What an earlier run read, by the order that it left."""

    fresh = False

    def __init__(self, order: Order, staleness: int) -> None:
        self.order, self.staleness, self.oldest = order, staleness, oldest_of(staleness)

    def rows(self, interval: int, epoch: int, place: int, there: Sequence[Epochs]) -> list[int] | None:
        """Return what this read of the epoch gave then, once all of it is there."""
        wanted = self.order.read(interval, epoch, place)
        if len(wanted) != len(there):
            raise FormatError(f"{self.order.path}: tells of another graph, cut or model than this run's")
        self._check(interval, epoch, wanted, self.oldest, self.staleness)
        return list(wanted) if all(one in held for one, held in zip(wanted, there)) else None

    def weights(self, interval: int, epoch: int, there: Epochs) -> int | None:
        """Return the version that the epoch began with then."""
        wanted = self.order.version(interval, epoch)
        self._check(interval, epoch, [wanted], self.staleness, 0)
        return wanted if wanted in there else None

    def _check(self, interval: int, epoch: int, wanted: Epochs, behind: int, ahead: int) -> None:
        """Refuse what is forgotten by now, or never comes: it would be waited for without an end."""
        if any(not epoch - behind <= one <= epoch + ahead for one in wanted):
            raise FormatError(
                f"{self.order.path}: epoch {epoch + 1} of interval {interval} reads what no run with "
                f"staleness = {self.staleness} does; run it again without replay"
            )


def check_ages(epoch: int, chosen: Sequence[int], oldest: int) -> None:
    """Raise where something is older than what was promised."""
    for one in chosen:
        if epoch - one > oldest:
            raise TrainingError(
                f"epoch {epoch} was to read rows of epoch {one}, the oldest it may are {oldest} epochs old"
            )


def ages_of(epoch: int, chosen: Sequence[int]) -> Mapping[int, int]:
    """Return how many sources were read at each age; negative where they are ahead."""
    counted: dict[int, int] = {}
    for one in chosen:
        counted[epoch - one] = counted.get(epoch - one, 0) + 1
    return counted
