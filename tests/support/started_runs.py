"""Runs of `weft train` as users start them, on a small recipe: use `started` as a context."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import run_watch

PATIENCE = 240.0
RECIPE = ["data.name=community", "data.nodes=80", "data.classes=3", "data.features=8", "model.hidden=4"]


@contextmanager
def started(
    out: Path, *words: str, settings: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A run of the command; whatever comes, nothing of it is left: its workers are in its group."""
    given = [f"--set={each}" for each in (*RECIPE, *settings)]
    with _file(out).open("w") as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "weft", "train", *given, f"--out={out}", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(out.parent), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def said(out: Path) -> str:
    """Return what a run wrote to standard error."""
    return _file(out).read_text()


def ended(run: "subprocess.Popen[str]", out: Path, code: int) -> str:
    """Wait until a run has ended with a code, and return what it printed."""
    told, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == code, said(out)
    return told


def until(condition: Callable[[], bool], run: "subprocess.Popen[str]", out: Path) -> None:
    """Wait until something holds of a run that goes on."""
    run_watch.until(
        condition, running=lambda: run.poll() is None, told=lambda: said(out), patience=PATIENCE, pause=0.05
    )


def lives(process: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _file(out: Path) -> Path:
    return out.parent / f"{out.name}.said"
