"""Stopping politely: the first Ctrl-C or SIGTERM ends the run after its epoch, the second one at once."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from weft.comm.failure import is_worker


@contextmanager
def stop_requests(
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether a stop was asked for; the handlers before are put back at the end.

    Until that function is called for the first time no epoch has ended and there is nothing to keep: a signal
    then stops at once.
    """
    requests = _Requests()
    before = {number: signal.signal(number, requests.receive) for number in signals}
    try:
        yield requests.asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does: what it began is cleaned up, and the exit code is 130."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Workers are ended by their launcher, which knows the cause; handlers belong to the main thread.
    if is_worker() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Requests:
    def __init__(self) -> None:
        self.pending = False
        self.training = False

    def asked(self) -> bool:
        self.training = True
        return self.pending

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.pending or not self.training:
            raise KeyboardInterrupt
        self.pending = True
        again = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
        sys.stderr.write(f"weft: stopping after this epoch{again}\n")
        sys.stderr.flush()
