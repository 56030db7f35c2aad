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

from weft.comm.failure import INTERRUPTED, OutOfMemory, describe_exit, is_worker
from weft.errors import InputError
from weft.process import end_with
from weft.sizes import shown

_INSIDE = "WEFT_LIMITED"
_PASSED_ON = {signal.SIGINT, signal.SIGTERM}
_LOOK = 0.1
_LEAST = 640 << 20
"""With less, DuckDB and Python's own import were seen to ask for memory for ever."""
_FAILED = 101
"""How a command ends there instead of by 1, as libraries end a process that finds no room."""
_KNOWN = (0, 2, 3, INTERRUPTED)
"""How else a command ends by itself; glibc ends a process by another code where a thread finds no room."""


def run_limited(words: Sequence[str]) -> int | None:
    """Return the exit code of a command whose addresses are limited; None where they are not.

    A worker is not asked: whoever started it tells how it ended.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or _INSIDE in os.environ or is_worker():
        return None
    if limit < _LEAST:
        return _failed(f"a command needs {shown(_LEAST)} of addresses: {_limited(limit)}")
    memory = OutOfMemory()
    # Blocked before there is a child: one that comes in between would end this process alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        code = _waited_for(_started(words, before))
    except OSError:  # nor is there room for another process
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if code in _KNOWN:
        return code
    if code == _FAILED:
        return 1
    if -code in _PASSED_ON:  # it came before the command could answer
        sys.stderr.write("weft: interrupted\n")
        return INTERRUPTED
    return _failed(told(code, limit, memory))


def as_it_ended(code: int) -> int:
    """Return the exit code by which a command tells, if it runs here as a child, that it ended by itself."""
    watched = os.environ.get(_INSIDE) == str(os.getppid())
    return _FAILED if watched and code == 1 else code


def _failed(cause: str) -> int:
    sys.stderr.write(f"weft: error: {cause}\n")
    return InputError.exit_code


def _started(words: Sequence[str], mask: set[signal.Signals | int]) -> "subprocess.Popen[bytes]":
    """Return the command as a process, which is asked to end where this one is killed."""
    parent = os.getpid()

    def begin() -> None:
        # As exec would: a handler of ours would raise here, half-way between the two programs.
        for number in _PASSED_ON:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        end_with(parent, signal.SIGTERM)

    command, env = [sys.executable, "-m", "weft", *words], {**os.environ, _INSIDE: str(parent)}
    return subprocess.Popen(command, env=env, preexec_fn=begin)  # no thread is there yet


def _waited_for(child: "subprocess.Popen[bytes]") -> int:
    """Return how a child ended, which is passed the signals that were meant for it."""
    while (code := child.poll()) is None:
        came = signal.sigtimedwait(_PASSED_ON, _LOOK)
        # Ctrl-C, which is the kernel's, reaches the child by itself. The sender's number says less: it is 0
        # for one outside of this container, too.
        if came is not None and came.si_code <= 0:
            child.send_signal(came.si_signo)
    return code


def told(code: int, limit: int, memory: OutOfMemory | None = None) -> str:
    """Return what the death of a command means where its addresses are limited."""
    died = f"the command {describe_exit(code, memory)}"
    if code == -signal.SIGKILL:  # no library does that
        return died
    return f"{died}: {_limited(limit)}"


def _limited(limit: int) -> str:
    return (
        f"it may map {shown(limit)} of addresses (ulimit -v), and "
        "libraries die for want of more; raise that limit (ulimit -v unlimited), and bound memory by "
        "--memory, WEFT_MEMORY_LIMIT or a control group instead"
    )
