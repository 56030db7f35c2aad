"""What went wrong on a rank, told once: a record that travels as JSON, to the launcher and to other ranks.

gloo never names the rank that failed: survivors see "Connection closed by peer". So a rank that fails says so
itself before its connections close, and what the survivors then see is secondary.
"""

import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from weft.errors import FormatError, InputError, WorkerLost
from weft.machine import memory_kills
from weft.reading.json_values import Maybe, WholeNumber, parse_json
from weft.sizes import shown

Kind = Literal["refused", "raised", "died", "stalled", "lost"]
INTERRUPTED = 130
FOLDER_PREFIX = "weft-launch-"
"""Of the temporary folder in which a launcher gathers the records of its ranks."""
JOB_PREFIX = "weft-train-"
"""Of the temporary folder of what workers of `weft.train` are given."""
# Folders of this process's job, which its launcher removes as long as it lives.
_left: set[Path] = set()
STALL = 15.0
"""Seconds without a heartbeat after which a rank counts as stalled."""
JOIN = 30.0
"""Seconds that ranks wait for each other at the start."""
LOAD = 120.0
"""The same where a launcher watches them: none can be missing, they only load, all at once."""
# What stands first is the better explanation: a loss that others noticed explains nothing by itself.
_ORDER: dict[Kind, int] = {"raised": 0, "refused": 0, "died": 0, "stalled": 1, "lost": 2}
_SHAPE = {
    "rank": WholeNumber(-1),
    "kind": str,
    "message": str,
    "traceback": Maybe(str),
    "exit_code": Maybe(WholeNumber(0, 255)),
    "time": Maybe(float),
}


@dataclass(frozen=True)
class Failure:
    """Why a run ended: the guilty rank and what is known."""

    rank: int
    """The guilty rank; −1 where none can be named."""
    kind: Kind
    """The user's mistake, an exception, a death without a word, silence, or only that somebody is gone."""
    message: str
    traceback: str = ""
    exit_code: int = WorkerLost.exit_code
    time: float = field(default_factory=time.time)

    @staticmethod
    def of(rank: int, error: BaseException) -> "Failure":
        """Return the record of an exception."""
        text = str(error) or type(error).__name__
        if isinstance(error, WorkerLost):
            return Failure(rank=error.rank, kind="lost", message=text)
        if isinstance(error, InputError):
            return Failure(rank, "refused", " ".join(text.split()), exit_code=error.exit_code)
        lines = "".join(traceback.format_exception(error))
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        return Failure(rank, "raised", f"{type(error).__name__}: {error}", lines, exit_code=code)

    @property
    def told(self) -> str:
        """One line that names the rank and the cause."""
        if self.kind == "refused":
            return f"rank {self.rank}: {self.message}"
        if self.kind == "lost" or self.rank < 0:
            return self.message
        verb = "raised " if self.kind == "raised" else ""
        return f"rank {self.rank} {verb}{' '.join(self.message.split())}"

    def to_json(self) -> str:
        """Return the record as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> "Failure":
        """Return the record that `to_json` wrote; refuse any other text."""
        held = parse_json(text, "a failure", _SHAPE)
        if held["kind"] not in _ORDER:
            raise FormatError(f"a failure: no kind {held['kind']!r}")
        return Failure(**{name: held[name] for name in _SHAPE if held.get(name) is not None})


def first_cause(failures: Iterable[Failure]) -> Failure | None:
    """Return the failure that explains the others: a rank's own word before what others saw, then by time."""
    return min(failures, key=lambda failure: (_ORDER[failure.kind], failure.time), default=None)


def is_worker() -> bool:
    """Return whether this process was started as one rank of several, by weft or by torchrun."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launched() -> bool:
    """Return whether weft's own launcher started this process and will tell its failure."""
    return "WEFT_FAILURES" in os.environ


def orphaned() -> bool:
    """Return whether weft's launcher started this process and is gone."""
    return launched() and os.environ.get("WEFT_LAUNCHER") not in (None, str(os.getppid()))


def seconds(name: str, default: float) -> float:
    """Return the seconds that an environment variable asks for, or the default where it is not set."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(
            f"environment variable {name} must be a number of seconds greater than 0, got {text!r}"
        )
    return value


def guarded(run: Callable[[], int]) -> int:
    """Run a rank's program and return its exit code; on a failure tell it once and leave the process.

    The process leaves without the interpreter's tear-down: after a failed collective that can hang or abort.
    """
    if launched():
        # Ctrl-C reaches the whole process group; the launcher decides and ends its workers by SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return run()
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return 0
        failure = Failure.of(int(os.environ.get("RANK", "0")), error)
        tell(failure)
        leave(failure.exit_code)


def tell(failure: Failure) -> None:
    """Hand a failure to the launcher, or write it to standard error where torchrun watches."""
    folder = os.environ.get("WEFT_FAILURES")
    if folder is not None:
        _write(Path(folder) / f"{os.environ['RANK']}.json", failure.to_json())
        return
    with suppress(OSError):
        sys.stderr.write(f"{failure.traceback}weft: error: {failure.told}\n")
    report = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if report is not None and failure.kind != "lost":
        # The form that torchrun shows as the root cause.
        extra = {"py_callstack": failure.traceback or failure.told, "timestamp": str(int(failure.time))}
        _write(Path(report), json.dumps({"message": {"message": failure.told, "extraInfo": extra}}))


def clear_orphan(*also: Path) -> None:
    """Remove what a launcher that was killed has left: its folder of records, and that of a job."""
    _left.update(also)
    if not orphaned():
        return
    for folder in (Path(os.environ["WEFT_FAILURES"]).parent, *_left):
        # Only what a launcher made: the variable may have been left in a shell.
        if folder.name.startswith((FOLDER_PREFIX, JOB_PREFIX)) and folder.parent == Path(
            tempfile.gettempdir()
        ):
            shutil.rmtree(folder, ignore_errors=True)


def leave(code: int) -> NoReturn:
    """End this process at once with an exit code, after writing out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def describe_exit(code: int, memory: "OutOfMemory | None" = None) -> str:
    """Return what an exit code as `subprocess` gives it means."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code != signal.SIGKILL:
        return f"was killed by {name}"
    return f"was killed by {name} ({memory.told() if memory else _EITHER})"


_EITHER = "by hand, or by the system when memory ran out"


class OutOfMemory:
    """Whether the kernel has killed processes for memory since this was made, and how much they had."""

    def __init__(self) -> None:
        self._kills, self._peak = memory_kills(), _largest_child()

    def told(self) -> str:
        """Return who sent SIGKILL, as far as the machine tells."""
        before, now = self._kills, memory_kills()
        if before is None or now is None or now <= before:
            return _EITHER
        peak = _largest_child()
        had = f": it had {shown(peak)}" if peak > self._peak else ""
        return f"by the kernel, for lack of memory{had}; use more workers or machines, or a smaller batch"


def _largest_child() -> int:
    """Return the most bytes that any process had that this one started and that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _write(path: Path, text: str) -> None:
    # A failure that cannot be written (a full disk) must not hide itself behind another one.
    with suppress(OSError):
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
