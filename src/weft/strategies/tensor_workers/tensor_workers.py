"""The tensor workers of a run: a fixed number, or one that is tried out."""

from typing import Any, Literal

from weft.strategies.tensor_workers.pool import TensorPool
from weft.strategies.tensor_workers.tuning import Tuning


class TensorWorkers:
    """A pool, and how many workers it is to have."""

    def __init__(self, asked: int | Literal["auto"], intervals: int) -> None:
        self.tuning = Tuning(intervals) if asked == "auto" else None
        self.wanted = asked if self.tuning is None else self.tuning.number
        self.pool = TensorPool(int(self.wanted))

    def epoch_ended(self) -> None:
        """Have another number of workers where one is being looked for, from the next pass on."""
        if self.tuning is None or self.tuning.settled:
            return
        number = self.tuning.epoch_ended()
        if number != self.wanted:
            # A pass that has begun may still ask: one worker stays until the run ends.
            self.pool.resize(max(1, number))
            self.wanted = number

    def told(self) -> dict[str, Any]:
        """Return what an event tells of them."""
        told = self.pool.take_counts() | {"workers": int(self.wanted)}
        return told if self.tuning is None else told | {"tuned": self.tuning.told()}

    def close(self) -> None:
        """End all workers."""
        self.pool.close()
