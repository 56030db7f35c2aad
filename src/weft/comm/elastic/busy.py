"""How long a process computes: what makes it slow beside others, whatever holds it up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Busy:
    """Counts the seconds in which not all parts of a process wait for other processes.

    They pass on the clock: a process that shares its core, or is stopped now and then, is busy for longer.
    """

    def __init__(self, parts: int, now: Callable[[], float] = time.monotonic) -> None:
        self._parts, self._now = parts, now
        self._threads: set[int] = set()
        self._waiting = 0
        self._since = 0.0
        self._idle = 0.0
        self._began = now()
        self._lock = threading.Lock()

    def enrol(self) -> None:
        """Say that the calling thread is that of a part; what others wait for holds nobody up."""
        self._threads.add(threading.get_ident())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for other parts within."""
        if threading.get_ident() not in self._threads:
            yield
            return
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def seconds(self) -> float:
        """Return how long the process has computed since the beginning."""
        with self._lock:
            now = self._now()
            waited = now - self._since if self._waiting == self._parts else 0.0
            return now - self._began - self._idle - waited

    def _change(self, by: int) -> None:
        with self._lock:
            now = self._now()
            if self._waiting == self._parts:
                self._idle += now - self._since
            self._waiting += by
            self._since = now
