"""When a rank did what: the phases and the waits of a few epochs, for the picture in the report."""

import time
from collections.abc import Iterable
from typing import Any

from weft.events import Event

# Three epochs in a row, five times in a run: enough to find typical ones, and events stay small.
LENGTH = 3
WINDOWS = 5


class Timeline:
    """A sink that keeps the phases of an epoch, in seconds after `begin`, which ranks call together."""

    def __init__(self, epochs: int) -> None:
        self.stride = max(LENGTH, epochs // WINDOWS)
        self.phases: list[tuple[str, float, float]] = []
        self.began = time.perf_counter()

    def begin(self) -> None:
        """Begin an epoch."""
        self.began = time.perf_counter()
        self.phases.clear()

    def __call__(self, event: Event) -> None:
        if event["event"] == "phase":
            start = time.perf_counter() - event["seconds"]
            self.phases.append((event["name"], start, event["seconds"]))

    def due(self, epoch: int) -> bool:
        """Return whether the epoch of that number is one that is kept."""
        return epoch % self.stride < LENGTH

    def take(self, epoch: int, waits: Iterable[tuple[str, float, float]]) -> dict[str, Any]:
        """Return the field of an event that tells of the epoch, [name, start, seconds] each; else nothing."""
        if not self.due(epoch):
            return {}
        return {"timeline": {"phases": self._placed(self.phases), "waits": self._placed(waits)}}

    def _placed(self, spans: Iterable[tuple[str, float, float]]) -> list[list[Any]]:
        # A wait that began with the epoch before, the agreement at its end, belongs to that one.
        return [
            [name, round(start - self.began, 6), round(seconds, 6)]
            for name, start, seconds in spans
            if start >= self.began
        ]
