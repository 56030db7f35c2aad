"""The workers of a run as its launcher knows them: who was started, who is there, who leaves, who is gone."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.comm.elastic.start import Home, Process, Size, Spawn, defaults

if TYPE_CHECKING:
    from weft.comm.heartbeat import Watch

START = 600.0
"""Seconds after which a worker that never came is given up."""


@dataclass
class Started:
    """A worker that was started."""

    number: int
    process: Process
    started: float = field(default_factory=time.monotonic)
    found: float = 0.0
    """When there was a machine for it; 0: not yet."""
    ready: bool = False
    leaving: bool = False
    ended: bool = False
    """Whether its process is gone, in order or not."""
    left: bool = False
    """Whether it ended in order."""


class Roster:
    """All workers that were ever started, by number: none is given twice."""

    def __init__(self, size: Size, env: Mapping[str, str], *, patience: float, spawn: Spawn) -> None:
        """`patience`: seconds to wait for a machine where others wait for it."""
        self.size, self.env, self.patience, self.spawn = size, env, patience, spawn
        self.workers: dict[int, Started] = {}

    def __getitem__(self, number: int) -> Started:
        return self.workers[number]

    def alive(self) -> list[Started]:
        """Return those whose processes run."""
        return [each for each in self.workers.values() if not each.ended]

    def staying(self) -> list[Started]:
        """Return those that run and are not about to leave."""
        return [each for each in self.alive() if not each.leaving]

    def members(self) -> list[int]:
        """Return who can train."""
        return [each.number for each in self.staying() if each.ready]

    def coming(self) -> bool:
        """Return whether somebody is on the way."""
        return any(each.process.placed and not each.ready for each in self.alive())

    def gone(self, numbers: Iterable[int]) -> list[int]:
        """Return which of them ended, and not in order."""
        return [number for number in numbers if self[number].ended and not self[number].left]

    def start(self, target: int, home: Home) -> None:
        """Start as many as are missing."""
        for _ in range(target - len(self.staying())):
            number = len(self.workers)
            env = {**defaults(self.size), **self.env, **home.told(number, self.size)}
            self.workers[number] = Started(number, self.spawn(env))

    def let_go(self, target: int) -> None:
        """Have the youngest leave until so many stay; those without a machine first, and at once."""
        staying = sorted(self.staying(), key=lambda each: (each.process.placed, -each.number))
        for worker in staying[: max(len(staying) - target, 0)]:
            worker.leaving = True
            if not worker.process.placed:
                worker.process.kill()

    def end_silent(self, watch: "Watch", stall: float, say: Callable[[str], None]) -> None:
        """End a worker that is stopped: it cannot leave by itself, and others wait for it."""
        for worker in self.workers.values():
            if not worker.ended:
                watch.silence.setdefault(worker.number, 0.0)
            if not worker.ready:
                self._end_late(worker, say)
        watch.look()
        for number in watch.silent(stall):
            worker = self[number]
            if worker.process.poll() is None and not worker.ended:
                say(f"weft: worker {number} has sent no heartbeat for {stall:g} s and is ended")
                worker.process.kill()
            watch.silence[number] = 0.0

    def close(self) -> None:
        """Leave nothing behind: every process that still runs is ended, by its id."""
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in self.workers.values():
            worker.process.wait()

    def _end_late(self, worker: Started, say: Callable[[str], None]) -> None:
        """Give up a worker that never came; without a machine for it, only where others wait for it."""
        if worker.process.placed:
            worker.found = worker.found or time.monotonic()
            if time.monotonic() - worker.found > START:
                worker.process.kill()
            return
        there = sum(each.process.placed for each in self.alive())
        late = time.monotonic() - worker.started > self.patience
        if late and there < self.size.least and not worker.ended:
            say(f"weft: no machine was found for worker {worker.number} in {self.patience:g} s")
            worker.process.kill()
