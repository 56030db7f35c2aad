"""What processes take: their memory before data, the time of a start, and the link between two of them."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from weft.comm.launch import run_workers
from weft.errors import WorkerLost
from weft.process import environment

_LIMIT = 120.0
_TINY = ("data.name=community", "data.nodes=200", "data.features=8", "model.hidden=8", "train.epochs=2")


def tiny_run(workers: int) -> dict[str, Any]:
    """Return the summary of a run on next to nothing, with `took`: the seconds of the command."""
    with tempfile.TemporaryDirectory(prefix="weft-measure-") as folder:
        command = [sys.executable, "-m", "weft", "train", "--json", "--out", f"{folder}/run"]
        command += [f"--set={setting}" for setting in (*_TINY, "train.device=cpu")]
        command += ["--workers", str(workers), "--set=strategy.partitioner=range"] if workers > 1 else []
        began = time.perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, env=environment())
        if ended.returncode:
            raise WorkerLost(f"a trial run failed: {ended.stderr.strip().splitlines()[-1:]}")
        summary: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
        return {**summary, "took": time.perf_counter() - began}


def link() -> tuple[float, float]:
    """Return the seconds of a small message between two processes, and the bytes a second of a large one."""
    with tempfile.TemporaryDirectory(prefix="weft-measure-") as folder:
        path = Path(folder) / "link.json"
        command = [sys.executable, "-m", "weft.plan.measure.link_worker", str(path)]
        if run_workers(command, 2, say=lambda line: None):
            raise WorkerLost("the link between two processes could not be measured; see weft doctor")
        told = json.loads(path.read_text(encoding="utf-8"))
        return float(told["latency"]), float(told["bandwidth"])
