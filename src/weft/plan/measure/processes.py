"""What processes take: their memory before data, the time of a start, and the link between two of them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from weft.comm.launch import run_workers
from weft.errors import WorkerLost
from weft.process import environment
from weft.sizes import shown

LIMIT = 60.0
"""Seconds that a measurement may take: a machine that is busy is not waited for."""
_TINY = ("data.name=community", "data.nodes=200", "data.features=8", "model.hidden=8", "train.epochs=2")


@dataclass(frozen=True)
class TinyRun:
    """What a run on next to nothing took."""

    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"processes of {shown(self.bytes)} that start in {self.seconds:g} s"


@dataclass(frozen=True)
class LinkSpeed:
    """What two processes of this machine send to each other."""

    call: float
    """Seconds of a call, beside those of its messages."""
    latency: float
    """Seconds of a small message."""
    bandwidth: float
    """Bytes a second of a large one."""

    def __str__(self) -> str:
        return (
            f"calls of {self.call * 1e6:g} µs, messages of {self.latency * 1e6:g} µs and "
            f"{self.bandwidth / 1e6:g} MB/s"
        )


def tiny_run(workers: int) -> TinyRun:
    """Return what the command of a run on next to nothing takes, by its own summary and by the clock."""
    with tempfile.TemporaryDirectory(prefix="weft-measure-") as folder:
        command = [sys.executable, "-m", "weft", "train", "--json", "--out", f"{folder}/run"]
        command += [f"--set={setting}" for setting in (*_TINY, "train.device=cpu")]
        command += ["--workers", str(workers), "--set=strategy.partitioner=range"] if workers > 1 else []
        began = time.perf_counter()
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **environment()}
        )
        if ended.returncode:
            said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise WorkerLost(f"a trial run failed: {said[-1]}")
        summary = json.loads(ended.stdout.strip().splitlines()[-1])
        return TinyRun(int(summary["peak_memory_bytes"]), time.perf_counter() - began)


def link() -> LinkSpeed:
    """Return what two processes of this machine send to each other."""
    with tempfile.TemporaryDirectory(prefix="weft-measure-") as folder:
        path = Path(folder) / "link.json"
        command = [sys.executable, "-m", "weft.plan.measure.link_worker", str(path)]
        limits = {"WEFT_TIMEOUT": f"{LIMIT:g}", "WEFT_JOIN": f"{LIMIT:g}"}
        if run_workers(command, 2, env=limits, say=lambda line: None, stall=LIMIT):
            raise WorkerLost("two processes could not be joined; see weft doctor")
        told = json.loads(path.read_text(encoding="utf-8"))
        return LinkSpeed(*(float(told[name]) for name in ("call", "latency", "bandwidth")))
