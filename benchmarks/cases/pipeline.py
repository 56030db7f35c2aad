"""Stages of layers: how long workers stand idle, beside (K - 1) / (M + K - 1), and what a step costs by 1F1B.

Idle time means something where there are as many cores as workers.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.events import read_events
from weft.machine import usable_cores

_LAYERS = 4
_EPOCHS = 4
SHAPES = [(2, 2), (2, 8), (4, 4), (4, 16)]
"""Stages and micro-batches."""


def rows() -> Iterator[str]:
    """Give a row per number of stages and of micro-batches."""
    yield f"{usable_cores()} cores"
    yield ""
    yield "| stages | micro-batches | schedule | idle, measured | idle, formula | epoch |"
    yield "|---|---|---|---|---|---|"
    for stages, micro in SHAPES[:1] if tiny() else SHAPES:
        for schedule in ("gpipe", "1f1b"):
            idle, formula, epoch = _run(stages, micro, schedule)
            cells = f"{100 * idle:.1f} % | {100 * formula:.1f} % | {1e3 * epoch:.0f} ms"
            yield f"| {stages} | {micro if schedule == 'gpipe' else '–'} | {schedule} | {cells} |"


def _run(stages: int, micro: int, schedule: str) -> tuple[float, float, float]:
    """Return the median measured and expected idle share, and the seconds of an epoch."""
    settings = [f"data.nodes={1_000 if tiny() else 20_000}", "data.name=community", "model.hidden=128"]
    settings += [f"model.layers={_LAYERS}", "strategy.name=pipeline", f"strategy.stages={stages}"]
    settings += ["strategy.fanout=4", "strategy.batch_size=512"]
    settings += [f"strategy.schedule={schedule}", f"train.epochs={_EPOCHS}", f"train.eval_every={_EPOCHS}"]
    settings += [f"strategy.micro_batches={micro}"] if schedule == "gpipe" else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "weft", "train", f"--out={out}", f"--workers={stages}"]
        command += [f"--set={setting}" for setting in settings]
        subprocess.run(command, capture_output=True, check=True, timeout=600)
        told = [event for event in read_events(out) if event["event"] == "epoch"][1:]
    idle, formula = (
        statistics.median(event["pipeline"][name] for event in told) for name in ("bubble", "bubble_expected")
    )
    return idle, formula, statistics.median(sum(event["seconds"].values()) for event in told)


CASES = [Study("pipeline", "idle time of stages of SAGE 4 x 128 on 20,000 nodes", rows)]
