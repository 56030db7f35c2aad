"""Stopping politely: the first Ctrl-C or SIGTERM ends the run after its epoch, the second one at once."""

import _thread
import os
import signal
import sys
import threading
import time
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
    try:
        requests.take(signals)
        yield requests.asked
    finally:
        for number, handler in requests.before.items():
            signal.signal(number, handler)


_Handler = Callable[[int, FrameType | None], object] | int | None


class Interrupted(KeyboardInterrupt):
    """What a signal raises.

    A plain KeyboardInterrupt that passes through text which is being executed, as while a dataclass is made,
    is remembered by CPython, and `python -m` then dies by SIGINT whatever its exit code was.
    """


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end a command: what it began is cleaned up, and the exit code is 130."""
    # Workers are ended by their launcher, which knows the cause; handlers belong to the main thread.
    if is_worker() or threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = _Ending()
    # A shell's background job ignores Ctrl-C, and so does what it runs.
    numbers = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ending.receive) for number in numbers}
    hook, sys.unraisablehook = sys.unraisablehook, ending.unraisable
    try:
        yield
    except Exception as error:
        if ending.taken:  # it met code that made another error of it
            raise Interrupted from error
        raise
    finally:
        ending.over = True
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDING = (signal.SIGINT, signal.SIGTERM)
_AGAIN, _IMPORT = 0.05, 30.0


class _Ending:
    """A command that ends at the first signal, but never in the middle of an import.

    Modules that are being imported catch everything at places, and torch's own abort the process: the signal
    is sent again when the import is done, or after half a minute. A second one by hand is not put off.
    """

    def __init__(self) -> None:
        self.taken = False
        self.over = False
        self._latest = 0.0
        self._number: int = signal.SIGINT
        self._lost = False
        self._again = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Raise `Interrupted`, now or soon."""
        first, again, self._again = not self.taken, self._again, False
        self._number = number
        if first:
            self.taken, self._latest = True, time.monotonic() + _IMPORT
            # The locks of `threading` may be held by what was interrupted.
            _thread.start_new_thread(self._insist, ())
        if (first or again) and _imports(frame) and time.monotonic() < self._latest:
            self._lost = True
        else:
            raise Interrupted

    def unraisable(self, told: "sys.UnraisableHookArgs") -> None:
        """Note a signal that came in the finaliser of an object, where nothing can be raised."""
        if issubclass(told.exc_type, KeyboardInterrupt):
            self._lost = True  # raised here, it would be lost like the first
        else:
            sys.__unraisablehook__(told)

    def _insist(self) -> None:
        """Send the signal again where it has not ended the command."""
        main = threading.main_thread().ident or 0
        while not self.over:
            time.sleep(_AGAIN)
            busy = _imports(sys._current_frames().get(main)) and time.monotonic() < self._latest
            if self._lost and not busy and not self.over:
                self._lost, self._again = False, True
                os.kill(os.getpid(), self._number)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported where a frame stands."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class _Requests:
    def __init__(self) -> None:
        self.pending = False
        self.training = False
        self.before: dict[int, _Handler] = {}

    def take(self, signals: Sequence[signal.Signals]) -> None:
        """Answer signals from now on."""
        for number in signals:
            self.before[number] = signal.signal(number, self.receive)
            # One may have come while modules were imported.
            if isinstance(owner := getattr(self.before[number], "__self__", None), _Ending) and owner.taken:
                raise Interrupted

    def asked(self) -> bool:
        self.training = True
        return self.pending

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.pending or not self.training:
            handler = self.before[number]
            if callable(handler):
                handler(number, frame)
            raise Interrupted
        self.pending = True
        again = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
        sys.stderr.write(f"weft: stopping after this epoch{again}\n")
        sys.stderr.flush()
