"""One of two workers has half a core: the epoch while parts stay, and after parts have moved away from it."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.events import read_events

PARTS = 12
EPOCHS = 60
REQUIRED = 1.15
PULSE = 0.004
"""Seconds for which the slow worker runs, and stands still, by turns: the share of a core is exact."""


def rows() -> Iterator[str]:
    """Give the epoch with two whole cores, with one and a half, and after moving."""
    even = _epoch(slow=False, keep=True)
    kept = _epoch(slow=True, keep=True)
    moved = _epoch(slow=True, keep=False)
    balanced = even * 2 / 1.5
    yield "| | epoch | of the balanced one |"
    yield "|---|---|---|"
    yield f"| two whole cores, {PARTS} parts | {even * 1e3:.0f} ms | |"
    yield f"| balanced on one and a half: the same work on 1.5 cores | {balanced * 1e3:.0f} ms | 1.00× |"
    yield f"| parts stay | {kept * 1e3:.0f} ms | {kept / balanced:.2f}× |"
    yield f"| parts have moved | {moved * 1e3:.0f} ms | {moved / balanced:.2f}×, required ≤ {REQUIRED}× |"


def _epoch(*, slow: bool, keep: bool) -> float:
    """Return the median of the epochs since workers or parts last changed."""
    nodes = 2_000 if tiny() else 60_000
    settings = ["data.name=community", f"data.nodes={nodes}", "model.name=sage", "model.hidden=128"]
    settings += [f"train.epochs={12 if tiny() else EPOCHS}", f"train.eval_every={EPOCHS}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-W", "ignore", "-m", "weft", "train", "--workers=2:2", f"--parts={PARTS}"]
        command += [f"--out={out}", *(f"--set={setting}" for setting in settings)]
        command += ["--keep-parts"] if keep else []
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, env=env, text=True, **quiet) as run, _slowed(run.pid, out, slow):
            _, said = run.communicate(timeout=1200)
        if run.returncode:
            raise RuntimeError(said)
        events = list(read_events(out))
    last = max(event["epoch"] for event in events if event["event"] == "generation")
    took = [
        sum(event["seconds"].values())
        for event in events
        if event["event"] == "epoch" and event["epoch"] > last + 2
    ]
    return statistics.median(took)


@contextmanager
def _slowed(launcher: int, out: Path, slow: bool) -> Iterator[None]:
    """Have the second worker stand still half of the time, once the run trains."""
    over = threading.Event()

    def pulse() -> None:
        while not (out / "events.jsonl").exists() and not over.wait(0.1):
            pass
        worker = worker_of(launcher, 1)
        with suppress(ProcessLookupError):
            while worker is not None and not over.wait(PULSE):
                os.kill(worker, signal.SIGSTOP)
                time.sleep(PULSE)
                os.kill(worker, signal.SIGCONT)

    thread = threading.Thread(target=pulse, daemon=True)
    if slow:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if slow:
            thread.join()


def worker_of(launcher: int, number: int) -> int | None:
    """Return the process of a worker that the launcher started."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="utf-8").split():
        with suppress(OSError):
            if f"WEFT_MEMBER={number}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
                return int(child)
    return None


CASES = [
    Study(
        "elastic_balance",
        "one of two workers has half a core: SAGE 2 x 128 on 60,000 nodes in 12 parts",
        rows,
        note="Epochs since parts last moved; the slow worker is stopped for 4 ms out of every 8.",
    )
]
