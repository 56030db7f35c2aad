"""What workers print: rank 0 owns the terminal, lines of the others come with their rank in front.

A traceback is held back until its rank has ended. Then it is shown if it is the first cause, and once; the
tracebacks that follow on the other ranks explain nothing.
"""

import sys
import threading
import time
from typing import IO

_TAIL = 200  # lines of a traceback that are worth keeping
_BEGIN = "Traceback (most recent call last)"
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_HOLD = 3.0  # seconds after which a rank that lives on has only logged its traceback


class RankOutput:
    """Forwards the lines of one rank to standard error from a thread of its own."""

    def __init__(self, rank: int, pipe: IO[bytes]) -> None:
        self.rank = rank
        self.pipe = pipe
        self.quiet = False
        self._held: list[str] = []
        self._named = False  # whether the line of the exception itself was seen
        self._since = 0.0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"weft-output-{rank}", daemon=True)
        self._thread.start()

    def turn(self) -> None:
        """Release lines that were held for nothing."""
        with self._lock:
            if self._held and time.monotonic() - self._since > _HOLD:
                self._release()

    def finish(self, *, show: bool) -> None:
        """Read what is left after the rank ended; show what was held, or drop it."""
        self._thread.join(timeout=1.0)
        with self._lock:
            if show:
                self._release()
            self._held = []

    def _run(self) -> None:
        with self.pipe:
            for raw in self.pipe:
                with self._lock:
                    self._take(raw.decode(errors="replace").rstrip("\n"))

    def _take(self, line: str) -> None:
        if self._held and self._named and not self.quiet and not _continues(line):
            self._release()  # the rank lives on: it has only logged its traceback
        if self._held:
            begins, indented = line.startswith(_BEGIN), line.startswith(" ")
            self._named = not begins and (self._named or (bool(line) and not indented))
            self._held = [*self._held, line][-_TAIL:]
        elif line.startswith(_BEGIN):
            self._since = time.monotonic()
            self._held, self._named = [line], False
        elif not self.quiet:
            sys.stderr.write(f"[rank {self.rank}] {line}\n")

    def _release(self) -> None:
        for line in self._held:
            sys.stderr.write(f"[rank {self.rank}] {line}\n")
        self._held = []


def _continues(line: str) -> bool:
    """Return whether a line after that of an exception still belongs to it, or to one that it led to."""
    return not line or line.startswith((" ", _BEGIN, *_CHAINS))
