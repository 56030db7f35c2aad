"""One of two workers has half a core: the epoch while parts stay, and after parts have moved away from it.

Each worker is held to a core of its own: parts are threads, and those of a worker that is stopped half of the
time would take two cores in the other half, so that it were not slow at all.
"""

import math
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.events import Event, read_events

WORKERS = 2
PARTS = 12
EPOCHS, WITH_MOVES = 12, 30
"""Of runs whose parts stay, and of those that first see who is slow."""
REQUIRED = 1.15
HIDDEN = 384
"""So wide that products of matrices take the epoch: what does not grow with a worker's parts cannot move."""
HELD_UP = 1.25
"""How much longer than balanced an epoch must take while parts stay: else there was nothing to gain."""
PULSE = 0.004
"""Seconds for which the slow worker runs, and stands still, by turns."""


def rows() -> Iterator[str]:
    """Give the epoch with two whole cores, with one and a half, and after moving."""
    if len(os.sched_getaffinity(0)) < WORKERS:
        yield "one core: nothing was measured"
        return
    even = _epoch(slow=False, keep=True)
    kept = _epoch(slow=True, keep=True)
    moved = _epoch(slow=True, keep=False)
    balanced = even * 2 / 1.5
    yield "| | epoch | of the balanced one |"
    yield "|---|---|---|"
    yield f"| two whole cores, {PARTS} parts | {even * 1e3:.0f} ms | |"
    yield f"| balanced on one and a half: the same work on 1.5 cores | {balanced * 1e3:.0f} ms | 1.00× |"
    yield f"| parts stay | {kept * 1e3:.0f} ms | {kept / balanced:.2f}× |"
    verdict = f"required ≤ {REQUIRED}×"
    if kept < HELD_UP * balanced:
        verdict = "says nothing: parts that stay held nobody up, the machine does other work"
    yield f"| parts have moved | {moved * 1e3:.0f} ms | {moved / balanced:.2f}×, {verdict} |"


def _epoch(*, slow: bool, keep: bool) -> float:
    """Return the median of the epochs by the clock, once parts are where they stay."""
    nodes = 2_000 if tiny() else 60_000
    settings = ["data.name=community", f"data.nodes={nodes}", "model.name=sage", f"model.hidden={HIDDEN}"]
    epochs = EPOCHS if keep or tiny() else WITH_MOVES
    settings += [f"train.epochs={epochs}", f"train.eval_every={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-W", "ignore", "-m", "weft", "train", "--workers=2:2", f"--parts={PARTS}"]
        command += [f"--out={out}", *(f"--set={setting}" for setting in settings)]
        command += ["--keep-parts"] if keep else []
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (
            subprocess.Popen(command, env=env, text=True, **quiet) as run,
            _held_to_cores(run.pid, out, slow),
        ):
            _, said = run.communicate(timeout=1200)
        if run.returncode:
            raise RuntimeError(said)
        events = list(read_events(out))
    return _median(events)


def _median(events: list[Event]) -> float:
    """Return the median epoch of the last generation that trained for some, the first ones left out."""
    begins = [event["epoch"] for event in events if event["event"] == "generation"]
    for begin, end in reversed([*pairwise([*begins, math.inf])]):
        ends = [e["time"] for e in events if e["event"] == "epoch" and begin + 2 < e["epoch"] <= end][:-1]
        if len(ends) > 3:
            return statistics.median(after - before for before, after in pairwise(ends))
    raise RuntimeError("no generation trained for long enough")


@contextmanager
def _held_to_cores(launcher: int, out: Path, slow: bool) -> Iterator[None]:
    """Give each worker a core once the run trains, and have the second stand still half of the time."""
    over = threading.Event()

    def pulse() -> None:
        while not (out / "events.jsonl").exists() and not over.wait(0.1):
            pass
        with suppress(OSError):  # they have ended
            for number, core in zip(range(WORKERS), sorted(os.sched_getaffinity(0))):
                if (worker := worker_of(launcher, number)) is not None:
                    hold(worker, core)
            if slow and worker is not None:
                _run_half_the_time(worker, over)

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _run_half_the_time(worker: int, over: threading.Event) -> None:
    """Stop a process for as long as it has run, again and again: it is told late where cores are busy."""
    ahead, since = 0.0, time.monotonic()
    while not over.wait(PULSE):
        os.kill(worker, signal.SIGSTOP)
        stopped = time.monotonic()
        ahead += stopped - since
        time.sleep(max(ahead, 0.0))
        os.kill(worker, signal.SIGCONT)
        since = time.monotonic()
        ahead -= since - stopped


def hold(process: int, core: int) -> None:
    """Have all threads of a process run on one core, and so those that they start."""
    held: set[str] = set()
    while new := {*os.listdir(f"/proc/{process}/task")} - held:  # one may have begun another meanwhile
        for thread in new:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), {core})
        held |= new


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
        "one of two workers has half a core: SAGE 2 x 384 on 60,000 nodes in 12 parts",
        rows,
        note="Epochs by the clock since parts last moved; each worker has a core of its own, the slow one is "
        "stopped for as long as it has run, every 4 ms.",
    )
]
