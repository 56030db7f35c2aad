"""Whose turn it is among the intervals of a worker: of those that can go on, who is furthest behind.

One interval computes at a time, with all cores. The turn is dealt, not taken: whoever gives it up, hands out
rows or publishes weights looks who can go on now, so that nobody is ahead only because its thread woke first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, TypeVar

T = TypeVar("T")
Place = tuple[int, int]
"""How far an interval is: its epoch, and how many reads of it are done."""


@dataclass(eq=False)
class _Waiting:
    """An interval that waits for its turn, or for something that must be there before."""

    place: Place
    found: Callable[[], Any]
    since: float = field(default_factory=time.perf_counter)
    value: Any = None


class Turns:
    """Deals the turn. All is called with the lock of `changed` held; every wait ends when the run does."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.holder: int | None = None
        """The interval that computes."""
        self._waiting: dict[int, _Waiting] = {}
        self._ended: BaseException | None = None

    def wait(self, interval: int, place: Place, found: Callable[[], T | None]) -> T:
        """Let others go on; return what is found once it is, and nobody further behind can go on."""
        self.check()
        waiting = self._waiting[interval] = _Waiting(place, found)
        self.give(interval)
        while self.holder != interval:
            self.check()
            self.changed.wait()
        value: T = waiting.value
        return value

    def give(self, interval: int) -> None:
        """Let others compute."""
        if self.holder == interval:
            self.holder = None
        self.deal()

    def deal(self) -> None:
        """Give the turn, where nobody has it, to who is furthest behind of those that find what they need."""
        if self.holder is not None or self._ended is not None:
            return
        for interval, waiting in sorted(self._waiting.items(), key=lambda each: (each[1].place, each[0])):
            try:
                waiting.value = waiting.found()
            except BaseException as error:
                self.end(error)
                return
            if waiting.value is not None:
                del self._waiting[interval]
                self.holder = interval
                self.changed.notify_all()
                return

    def end(self, why: BaseException) -> None:
        """Wake everybody who waits; the first reason is told."""
        self._ended = self._ended or why
        self.changed.notify_all()

    def check(self) -> None:
        """Raise what ended the run, where something did."""
        if self._ended is not None:
            raise self._ended
