"""An epoch with threads that sleep while they wait, as weft has them, and with threads that spin.

Alone on the machine, and beside other work: a process on every core.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.command import trained
from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.machine import usable_cores

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
# What libgomp does where nothing is said: spin for some milliseconds, then sleep. It goes before a policy.
SPINNING = str(300_000)
WAYS = {"asleep (as `weft` does)": {}, "spinning (as torch does)": {"GOMP_SPINCOUNT": SPINNING}}
BUSY = "while True: pass"
TURNS = 3


def rows() -> Iterator[str]:
    """Give a row per way and per neighbourhood: medians of some runs, by turns."""
    yield "| | epoch, alone | epoch, a busy process on every core |"
    yield "|---|---|---|"
    found = {
        (name, neighbours): _epoch(environment, neighbours)
        for neighbours in (0, usable_cores())
        for name, environment in WAYS.items()
    }
    for name in WAYS:
        alone, beside = (found[name, neighbours] for neighbours in (0, usable_cores()))
        yield f"| {name} | {alone * 1e3:.1f} ms | {beside * 1e3:.1f} ms |"


def _epoch(environment: dict[str, str], neighbours: int) -> float:
    settings = [f"data.nodes={2_000 if tiny() else 20_000}", "data.name=community", "model.hidden=64"]
    settings += ["model.name=sage", "train.epochs=20", "train.eval_every=20"]
    with _busy(neighbours):
        runs = [trained(settings, environment, without=VARIABLES) for _ in range(1 if tiny() else TURNS)]
    return statistics.median(run["epoch_seconds_median"] for run in runs)


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy for a while."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(process.kill)
        yield


CASES = [Study("waits", "epoch of SAGE 2 x 64 on 20,000 nodes by how threads wait for each other", rows)]
