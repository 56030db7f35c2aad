"""What workers that come and go cost: after a death, at a join, and in epochs in which nothing changes.

Two cores: two workers of one thread each. A change is timed from outside, and by what the run itself tells.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cases.elastic_balance import worker_of
from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.events import Event, read_events

_PATIENCE = 300.0
_CHANGES = 5
_TURNS = 5
"""Runs of each kind, by turns, of which epochs are compared."""


def rows() -> Iterator[str]:
    """Give deaths, joins and epochs without a change."""
    deaths, joins = _changes(1 if tiny() else _CHANGES)
    yield "| event | median | largest | required |"
    yield "|---|---|---|---|"
    yield f"| killed, until the others train again | {_shown(deaths)} | ≤ 1 s, reading lost parts aside |"
    yield f"| joined, from the last epoch to training on | {_shown(joins)} | ≤ 0.5 s |"
    fixed, elastic = _unchanged(1 if tiny() else _TURNS)
    yield ""
    yield "| an epoch in which nothing changes | median | |"
    yield "|---|---|---|"
    yield f"| `--workers 2` | {fixed * 1e3:.1f} ms | 1.00× |"
    yield f"| `--workers 2:2` | {elastic * 1e3:.1f} ms | {elastic / fixed:.3f}×, required ≤ 1.01× |"


def _shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.0f} ms | {max(seconds) * 1e3:.0f} ms"


def _changes(times: int) -> tuple[list[float], list[float]]:
    """Return the seconds of deaths and of joins, in runs of their own."""
    deaths, joins = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            deaths.append(_death(out))
            joins.append(_interruption(_events(out)))
    return deaths, joins


def _death(out: Path) -> float:
    """Have a second worker come and die; return the seconds until the first one trains again."""
    with _started(out, "--workers=1:2", epochs=100_000) as run:
        _until(lambda: len(_events(out, "epoch")) > 3)
        _scale(out, 2)
        _until(lambda: len(_events(out, "generation")) == 2)
        epoch = len(_events(out, "epoch"))
        _until(lambda: len(_events(out, "epoch")) > epoch + 3)
        killed = worker_of(run.pid, 1)
        assert killed is not None, "it trains"
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()
        _until(lambda: len(_events(out, "generation")) == 3)
        return time.monotonic() - began


def _interruption(events: list[Event]) -> float:
    """Return the seconds from the last epoch of the first generation to the beginning of the second one."""
    at = [place for place, event in enumerate(events) if event["event"] == "generation"][1]
    before = max(event["time"] for event in events[:at] if event["event"] == "epoch")
    return float(events[at]["time"] - before)


def _unchanged(turns: int) -> tuple[float, float]:
    """Return the median epoch of two workers that stay, and of two that could come and go."""
    took: dict[str, list[float]] = {"--workers=2": [], "--workers=2:2": []}
    for _ in range(turns):
        for words, held in took.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run"
                with _started(out, words, epochs=5 if tiny() else 30) as run:
                    run.wait(_PATIENCE)
                epochs = [sum(event["seconds"].values()) for event in _events(out, "epoch")]
                held += epochs[2:]
    fixed, elastic = (statistics.median(held) for held in took.values())
    return fixed, elastic


@contextmanager
def _started(out: Path, words: str, *, epochs: int) -> Iterator["subprocess.Popen[bytes]"]:
    nodes = 2_000 if tiny() else 60_000
    settings = ["data.name=community", f"data.nodes={nodes}", "model.name=sage", "model.hidden=128"]
    settings += [f"train.epochs={epochs}", f"train.eval_every={epochs}"]
    command = [sys.executable, "-W", "ignore", "-m", "weft", "train", words, f"--out={out}"]
    command += ["--parts=2", *(f"--set={setting}" for setting in settings)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet) as run:
        try:
            yield run
        finally:
            run.kill()


def _scale(out: Path, number: int) -> None:
    subprocess.run(
        [sys.executable, "-m", "weft", "scale", str(out), str(number)], check=True, capture_output=True
    )


def _events(out: Path, kind: str | None = None) -> list[Event]:
    if not (out / "events.jsonl").exists():
        return []
    return [event for event in read_events(out) if kind in (None, event["event"])]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the run does not come to where it should")
        time.sleep(0.005)


CASES = [
    Study(
        "elastic_membership",
        "workers that come and go: SAGE 2 x 128 on 60,000 nodes in 2 parts",
        rows,
        note="A death is timed from SIGKILL to the event of the next generation, written once it trains.",
    )
]
