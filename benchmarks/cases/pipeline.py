"""Stages of layers: how long workers stand idle, beside (K - 1) / (M + K - 1), and what a step costs by 1F1B.

The formula is of stages of equal work, on as many cores: nodes that only have themselves as neighbours give
each layer as many rows. On a real graph the first layer has most of them, and its stage sets the pace. Idle
time means something where there are as many cores as workers.

Stages must be equal forward and backward, for none begins backward before the last is through with forward.
A first layer makes no gradient of its input: it reads few features, and is in a stage beside as many wide
layers as the others have. So is the last one, which gives few classes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import weft
from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.events import read_events
from weft.machine import usable_cores

_LAYERS = 4
_EPOCHS = 4
SHAPES = [(2, 2), (2, 8), (4, 4), (4, 16)]
"""Stages and micro-batches."""
_SEEDS = 16_384
"""An epoch of 1 to 8 steps, each of micro-batches that are alike."""


REQUIRED = 1.15
_WIDTH, _NARROW = 512, 8
_WIDE_LAYERS = 4
"""Between the first layer and the last."""


def rows() -> Iterator[str]:
    """Give a row per number of stages and of micro-batches."""
    yield f"{usable_cores()} cores"
    yield ""
    yield "| stages of equal work | micro-batches | idle, measured | idle, formula | |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        _alone(1_024 if tiny() else _SEEDS).save(Path(folder) / "graph")
        for stages, micro in SHAPES[:1] if tiny() else SHAPES:
            if stages <= usable_cores():
                yield _equal(f"{folder}/graph", stages, micro)
    yield ""
    yield "| stages | micro-batches | schedule | idle, measured | idle, formula | epoch |"
    yield "|---|---|---|---|---|---|"
    stages, micro = SHAPES[0] if tiny() else SHAPES[-1]
    for schedule in ("gpipe", "1f1b"):
        idle, formula, epoch = _sampled(stages, micro, schedule)
        cells = f"{100 * idle:.1f} % | {100 * formula:.1f} % | {1e3 * epoch:.0f} ms"
        yield f"| {stages} | {micro if schedule == 'gpipe' else '–'} | {schedule} | {cells} |"


def _alone(seeds: int) -> weft.Graph:
    """Return a graph of nodes that are their own and only neighbours; each layer of it is as much work."""
    nodes = seeds + 64
    ids, draw = np.arange(nodes), np.random.default_rng(0)
    masks = {"train_mask": ids < seeds, "val_mask": ids >= seeds}
    x = draw.standard_normal((nodes, _NARROW), dtype=np.float32)
    return weft.Graph.from_edges(np.stack([ids, ids]), num_nodes=nodes, x=x, y=ids % _NARROW, **masks)


def _equal(graph: str, stages: int, micro: int) -> str:
    wide = [_WIDE_LAYERS // stages] * stages
    layers = [wide[0] + 1, *wide[1:-1], wide[-1] + 1]
    settings = [f"data.path={graph}", f"model.hidden={_WIDTH}", "model.dropout=0", "strategy.fanout=1"]
    settings += [f"strategy.batch_size={64 if tiny() else 1_024 * micro}", f"strategy.micro_batches={micro}"]
    idle, formula, _ = _run(stages, [*settings, f"model.layers={sum(layers)}", f"strategy.stages={layers}"])
    cells = f"{100 * idle:.1f} % | {100 * formula:.1f} %"
    return f"| {stages} | {micro} | {cells} | {idle / formula:.2f}×, required ≤ {REQUIRED}× |"


def _sampled(stages: int, micro: int, schedule: str) -> tuple[float, float, float]:
    settings = ["data.name=community", f"data.nodes={1_000 if tiny() else 20_000}", "model.hidden=128"]
    settings += ["strategy.fanout=4", "strategy.batch_size=512", f"strategy.schedule={schedule}"]
    settings += [f"strategy.micro_batches={micro}"] if schedule == "gpipe" else []
    return _run(stages, [*settings, f"model.layers={_LAYERS}", f"strategy.stages={stages}"])


def _run(stages: int, settings: list[str]) -> tuple[float, float, float]:
    """Return the median measured and expected idle share, and the seconds of an epoch."""
    settings = [*settings, "strategy.name=pipeline", f"train.epochs={_EPOCHS}"]
    settings += [f"train.eval_every={_EPOCHS}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "weft", "train", f"--out={out}", f"--workers={stages}"]
        command += [f"--set={setting}" for setting in settings]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=env, capture_output=True, check=True, timeout=600)
        told = [event for event in read_events(out) if event["event"] == "epoch"][1:]
    idle, formula = (
        statistics.median(event["pipeline"][name] for event in told) for name in ("bubble", "bubble_expected")
    )
    return idle, formula, statistics.median(sum(event["seconds"].values()) for event in told)


CASES = [
    Study(
        "pipeline",
        f"idle time of stages: SAGE of {_WIDE_LAYERS} equal layers, and 4 x 128 on 20,000 nodes",
        rows,
        note=f"Stages of equal work: layers {_WIDTH} wide, 1,024 nodes a micro-batch, a thread a worker.",
    )
]
