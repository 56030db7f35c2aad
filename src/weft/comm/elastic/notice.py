"""The word that a machine will be taken back: a command of the user's, asked now and then, that ends with 0.

Clouds tell it in ways of their own, as a page or a file; a command reads any of them. It is run without
a shell, sees the number of the worker in WEFT_MEMBER, and what it prints is not shown.
"""

import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence

from weft.errors import InputError

EVERY = 5.0
"""Seconds from one time that the command is asked to the next: warnings come 30 to 120 s ahead."""
BOUND = 10.0
"""Seconds after which a command that does not end is ended; then it has said nothing."""
_POLL = 0.05


def command_given(text: str) -> list[str]:
    """Return the words of a command, or refuse one that cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--notice {text!r}: no command: {str(error).lower()}") from None
    if not words:
        raise InputError("--notice: expected a command, got an empty one; leave it out")
    if shutil.which(words[0]) is None:
        raise InputError(
            f"--notice: {words[0]!r} is no command that can be run; give its path (there is no shell)"
        )
    return words


class Notice:
    """Asks a command until it ends with 0, and then calls `tell` once."""

    def __init__(self, command: Sequence[str], tell: Callable[[], None], *, every: float = EVERY) -> None:
        self.command, self.tell, self.every = list(command), tell, every
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
            if self._asked():
                self.tell()
                return
            self._closing.wait(self.every)

    def _asked(self) -> bool:
        """Return whether the command ended with 0, in time."""
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(self.command, stdin=nothing, stdout=nothing, stderr=nothing)
        except OSError:  # it was there at the start: no word of it is no warning
            return False
        waited = 0.0
        while process.poll() is None and waited < BOUND and not self._closing.wait(_POLL):
            waited += _POLL
        if process.poll() is None:
            process.kill()
        return process.wait() == 0
