"""Cores that workers of one machine share, whichever links are between them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """The cores of alike machines."""

    count: int
    """Of one machine."""
    workers: int
    """That share them."""
    threads: int = 1
    """Of each worker's operators."""

    def shares(self, lanes: Sequence[tuple[int, int]]) -> list[float]:
        """Return how fast each lane works that does; a lane is its worker and the threads it works with.

        Those whose threads are more than the cores of their machine all take so much longer.

        >>> Cores(2, workers=2).shares([(0, 1), (1, 1), (1, 1), (2, 1)])
        [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 1.0]
        """
        busy: dict[int, int] = {}
        for rank, threads in lanes:
            machine = rank // self.workers
            busy[machine] = busy.get(machine, 0) + threads
        return [min(1.0, self.count / busy[rank // self.workers]) for rank, _ in lanes]
