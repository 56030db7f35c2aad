"""A command whose addresses are limited (`ulimit -v`): libraries die there by a signal, and say nothing.

Threads, allocators and mapped libraries take far more addresses than memory, and what is enough depends on
the versions of all of them. So the command runs in a process of its own, and this one tells how it ended.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

from weft.comm.failure import INTERRUPTED, describe_exit, is_worker
from weft.errors import InputError
from weft.sizes import shown

_INSIDE = "WEFT_LIMITED"
_PASSED_ON = {signal.SIGINT, signal.SIGTERM}
_LOOK = 0.1
_KNOWN = (0, 1, 2, 3, INTERRUPTED)
"""How a command ends by itself; glibc ends a process by another code where a thread finds no room."""


def run_limited(words: Sequence[str]) -> int | None:
    """Return the exit code of a command whose addresses are limited; None where they are not.

    A worker is not asked: whoever started it tells how it ended.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or _INSIDE in os.environ or is_worker():
        return None
    child = subprocess.Popen([sys.executable, "-m", "weft", *words], env={**os.environ, _INSIDE: "1"})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        while child.poll() is None:
            came = signal.sigtimedwait(_PASSED_ON, _LOOK)
            if came is not None and came.si_pid:  # Ctrl-C reaches the child by itself
                child.send_signal(came.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if child.returncode in _KNOWN:
        return child.returncode
    sys.stderr.write(f"weft: error: {told(child.returncode, limit)}\n")
    return InputError.exit_code


def told(code: int, limit: int) -> str:
    """Return what the death of a command means where its addresses are limited."""
    return (
        f"the command {describe_exit(code)}: it may map {shown(limit)} of addresses (ulimit -v), and "
        "libraries die for want of more; raise that limit (ulimit -v unlimited), and bound memory by "
        "--memory, WEFT_MEMORY_LIMIT or a control group instead"
    )
