"""The tensor workers of a run: a fixed number, or one that is tried out; here, or where Ray has room."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from weft.strategies.tensor_workers.pool import TensorPool
from weft.strategies.tensor_workers.process_worker import ProcessWorker
from weft.strategies.tensor_workers.ray_place import ray_with_room
from weft.strategies.tensor_workers.ray_worker import RayWorker
from weft.strategies.tensor_workers.tuning import Tuning


@dataclass(frozen=True)
class TensorOptions:
    """What a recipe says of tensor workers."""

    number: int | Literal["auto"] = 0
    engine: Literal["processes", "ray"] = "processes"
    ray_address: str | None = None


class TensorWorkers:
    """A pool, and how many workers it is to have."""

    def __init__(self, options: TensorOptions, intervals: int, *, sharing: int = 1) -> None:
        """`sharing` processes of a run have as many each."""
        asked = options.number
        self.tuning = Tuning(intervals) if asked == "auto" else None
        self.wanted = asked if self.tuning is None else self.tuning.number
        most = int(self.wanted) if self.tuning is None else self.tuning.most
        self._open = ExitStack()
        make: Any = ProcessWorker
        if options.engine == "ray":
            at = ray_with_room(most, options.ray_address, sharing=sharing)
            make = partial(RayWorker, self._open.enter_context(at))
        self.pool = TensorPool(int(self.wanted), make)

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
        """End all workers, and a Ray that was started for them."""
        with self._open:
            self.pool.close()
