"""The word that a machine will be taken back: a command or a page of the user's, asked now and then.

Clouds tell it in ways of their own. A page is asked by HTTP, a command reads anything else: it is run without
a shell, sees the number of the worker in WEFT_MEMBER, and what it prints is not shown.
"""

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from weft.comm.elastic.notice_page import NoticePage
from weft.errors import InputError

EVERY = 5.0
"""Seconds from one time that is asked to the next: warnings come 30 to 120 s ahead."""
BOUND = 10.0
"""Seconds after which a command that does not end is ended; then it has said nothing."""
_POLL = 0.05


class NoticeSource(Protocol):
    """Something that knows whether this worker is to leave."""

    def says_so(self, closing: threading.Event) -> bool:
        """Ask it, for a bounded time, and not for long once it is closing."""


def notice_given(text: str) -> NoticeSource:
    """Return what --notice names, a page or a command, or refuse what cannot be asked."""
    first = next(iter(text.split()), "")
    return NoticePage.of(text.strip()) if "://" in first else NoticeCommand.of(text)


@dataclass(frozen=True)
class NoticeCommand:
    """A command that ends with 0 when this worker is to leave."""

    words: tuple[str, ...]

    @staticmethod
    def of(text: str) -> "NoticeCommand":
        """Return the command of a text, or refuse one that cannot be run."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(f"--notice {text!r}: no command: {str(error).lower()}") from None
        if not words:
            raise InputError("--notice: expected a command or a URL, got an empty one; leave it out")
        if shutil.which(words[0]) is None:
            raise InputError(
                f"--notice: {words[0]!r} is no command that can be run; give its path (there is no shell)"
            )
        return NoticeCommand(tuple(words))

    def says_so(self, closing: threading.Event) -> bool:
        """Return whether the command ended with 0, in time."""
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                self.words, stdin=nothing, stdout=nothing, stderr=nothing, process_group=0
            )
        except OSError:  # it was there at the start: no word of it is no warning
            return False
        waited = 0.0
        while process.poll() is None and waited < BOUND and not closing.wait(_POLL):
            waited += _POLL
        if process.poll() is None:  # what it started ends with it: the page that a script waits for
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait() == 0


class Notice:
    """Asks until the answer is yes, and then calls `tell` once."""

    def __init__(self, asked: NoticeSource, tell: Callable[[], None], *, every: float = EVERY) -> None:
        self.asked, self.tell, self.every = asked, tell, every
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-notice", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a command that is under way is ended."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while not self._closing.is_set():
            if self.asked.says_so(self._closing) and not self._closing.is_set():
                self.tell()
                return
            self._closing.wait(self.every)
