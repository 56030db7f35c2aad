"""What workers tell of the time that they take, and their parts."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from weft.comm.elastic.busy import Busy
from weft.comm.run_store import RunStore

EPOCHS = 3
"""Workers tell every so many epochs."""


def _key(generation: int, worker: int) -> str:
    return f"took/{generation}/{worker}"


@dataclass(frozen=True)
class Took:
    """What a worker took since its generation began, and its parts."""

    epoch: int
    busy: float
    parts: dict[int, float]
    clock: float
    """When, by a clock of the worker's machine: what lies between two counts."""

    @staticmethod
    def read(text: str) -> "Took":
        """Return what was written."""
        told = json.loads(text)
        parts = {int(part): ran for part, ran in told["parts"].items()}
        return Took(told["epoch"], told["busy"], parts, told["clock"])


class Stopwatch:
    """Adds up what the parts of one worker took, and tells it every few epochs."""

    def __init__(self, tell: Callable[[str, str], None], busy: Busy, parts: int) -> None:
        """`tell` writes a text under a name."""
        self._tell, self._busy, self._parts = tell, busy, parts
        self._ran: dict[int, dict[int, float]] = {}
        self._lock = threading.Lock()

    def note(self, generation: int, worker: int, part: int, epoch: int) -> None:
        """Take the time of the calling thread, that of a part, at the end of an epoch; the last one tells."""
        if epoch % EPOCHS:
            return
        with self._lock:
            held = self._ran.setdefault(epoch, {})
            held[part] = time.thread_time()
            if len(held) < self._parts:
                return
            del self._ran[epoch]
        took = Took(epoch, self._busy.seconds(), held, time.monotonic())
        self._tell(_key(generation, worker), json.dumps(asdict(took)))


def told_by_all(store: RunStore, generation: int, workers: list[int]) -> dict[int, Took]:
    """Return what all workers told after the same epoch; empty where they have not, or one is ahead."""
    keys = [_key(generation, worker) for worker in workers]
    said = store.read_all(keys)
    if said is None:
        return {}
    took = {worker: Took.read(text) for worker, text in zip(workers, said)}
    return took if len({each.epoch for each in took.values()}) == 1 else {}
