"""How well learned rows answer on knowledge graphs: filtered test ranks of recipes over seeds.

Every run is a `weft train` of a recipe as a user gives it, in a process of its own with one thread; on a GPU
a few run side by side. `--only ROW` runs the rows that begin so, `--seeds N` each with so many seeds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.graphs import DATA, tiny
from benchmarks.measure import Study

RECIPES = Path(__file__).parents[2] / "recipes"
SIDE_BY_SIDE = int(os.environ.get("WEFT_BENCH_RUNS", "15" if torch.cuda.is_available() else "1"))
"""Runs at a time: each of them leaves most of a GPU idle."""
PATIENCE = 3600.0
"""Seconds for a run."""


class Row(NamedTuple):
    """One line of the table: a recipe, what is set in it, and the test MRR aimed at, if any."""

    name: str
    recipe: str
    least: float | None
    settings: tuple[str, ...] = ()


NARROW = ("task.width=128",)
ON_A_CPU = (
    "task.width=256",
    "task.regularise.weight=0.04",
    "strategy.batch=250",
    "strategy.chunk=250",
    "strategy.negatives.count=1000",
    "strategy.negatives.inbatch=false",
    "strategy.negatives.weighted=true",
    "train.lr=0.15",
    "train.epochs=20",
    "train.eval_every=20",
)
DISTMULT = ("task.score.name=distmult", "train.epochs=60")
DISTMULT_ON_A_CPU = (*ON_A_CPU, "task.score.name=distmult")
FB15K237 = (
    Row("ComplEx", "knowledge_graph", 0.34),
    Row("CPU: ComplEx, 1,000 candidates drawn", "knowledge_graph", 0.34, ON_A_CPU),
    Row("DistMult, 60 epochs", "knowledge_graph", 0.335, DISTMULT),
    Row("CPU: DistMult, 1,000 candidates drawn", "knowledge_graph", 0.335, DISTMULT_ON_A_CPU),
    Row("TransE", "fb15k237_transe", 0.305),
)
PARTITIONS = (
    Row("1 partition", "fb15k237_transe", None, NARROW),
    *(
        Row(f"{count} partitions", "fb15k237_transe", None, (*NARROW, f"strategy.partitions={count}"))
        for count in (2, 4, 8)
    ),
    Row("ComplEx, 1 partition", "knowledge_graph", None, NARROW),
    Row("ComplEx, 8 partitions", "knowledge_graph", None, (*NARROW, "strategy.partitions=8")),
    Row("CPU: ComplEx of width 256, 1 partition", "knowledge_graph", None, ON_A_CPU),
    Row(
        "CPU: ComplEx of width 256, 8 partitions",
        "knowledge_graph",
        None,
        (*ON_A_CPU, "strategy.partitions=8"),
    ),
)
WN18RR_ON_A_CPU = (
    "task.width=256",
    "strategy.batch=250",
    "strategy.chunk=250",
    "strategy.negatives.count=1000",
    "strategy.negatives.weighted=true",
    "train.epochs=40",
    "train.eval_every=20",
)
WN18RR = (
    Row("ComplEx", "wn18rr_complex", 0.465),
    Row("CPU: ComplEx, 1,000 candidates drawn", "wn18rr_complex", 0.465, WN18RR_ON_A_CPU),
    Row("RotatE", "wn18rr_rotate", 0.465),
)
RGCN = (Row("R-GCN + DistMult", "fb15k237_rgcn", 0.24),)


def started(row: Row, seed: int, data: Path, folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """Begin a run; return it, and the file that gets its summary."""
    told = folder / f"{row.recipe}-{'-'.join(row.settings).replace('/', '_')}-{seed}.json"
    small = ("train.epochs=1", "train.eval_every=1", "task.width=8") if tiny() else ()
    settings = (f"data.path={data}", f"train.seed={seed}", *row.settings, *small)
    command = [sys.executable, "-m", "weft", "train", str(RECIPES / f"{row.recipe}.toml"), "--json"]
    for each in settings:
        command += ["--set", each]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    with open(told, "w") as out, open(told.with_suffix(".log"), "w") as log:
        return subprocess.Popen(command, stdout=out, stderr=log, text=True, env=threads), told


def seeds() -> range:
    """Return the seeds that a row is run with."""
    return range(1 if tiny() else int(os.environ.get("WEFT_BENCH_SEEDS") or 3))


def summaries(rows: tuple[Row, ...], data: Path, folder: Path) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    """Give each row with what its runs told, one a seed, as soon as all of them are there."""
    waiting = [(row, seed) for row in rows for seed in seeds()]
    found: dict[str, list[dict[str, Any]]] = {row.name: [] for row in rows}
    while waiting:
        some, waiting = waiting[:SIDE_BY_SIDE], waiting[SIDE_BY_SIDE:]
        for (row, _), (run, told) in [(each, started(*each, data, folder)) for each in some]:
            if run.wait(PATIENCE):
                raise RuntimeError(f"{row.name}: {told.with_suffix('.log').read_text()[-2000:]}")
            found[row.name].append(json.loads(told.read_text().splitlines()[-1]))
            if len(found[row.name]) == len(seeds()):
                yield row, found[row.name]


def table(rows: tuple[Row, ...], file: str) -> Iterator[str]:
    """Give a line for each row: mean and spread of the test metrics over seeds."""
    yield "| | test MRR | aim | hits@1 | hits@10 | seeds | epochs | seconds an epoch | minutes a run |"
    yield "|---|---|---|---|---|---|---|---|---|"
    only = os.environ.get("WEFT_BENCH_ONLY", "")
    with tempfile.TemporaryDirectory(prefix="weft-quality-") as name:
        data = small_facts(Path(name)) if tiny() else DATA / file
        chosen = tuple(row for row in rows if row.name.startswith(only))
        for row, runs in summaries(chosen, data, Path(name)):
            yield line(row, runs)


def line(row: Row, runs: list[dict[str, Any]]) -> str:
    """Return the line of a row."""
    cells = [_spread([run["metrics"]["test"][key] for run in runs]) for key in ("mrr", "hits@1", "hits@10")]
    cells.insert(1, "" if row.least is None else f"{row.least:g}")
    seconds = statistics.median(run["epoch_seconds_median"] for run in runs)
    minutes = statistics.median(run["seconds"] for run in runs) / 60
    cells += [str(len(runs)), str(runs[0]["epochs"]), f"{seconds:.2f}", f"{minutes:.1f}"]
    return f"| {row.name} | {' | '.join(cells)} |"


def small_facts(folder: Path) -> Path:
    """Write a few random facts, to see that the case runs."""
    random = np.random.default_rng(0)
    parts = {name: random.integers(0, [60, 4, 60], (count, 3)) for name, count in _SMALL.items()}
    names = {
        "entity": np.array([f"e{n}" for n in range(60)]),
        "relation": np.array([f"r{n}" for n in range(4)]),
    }
    np.savez(folder / "facts.npz", **parts, **names)
    return folder / "facts.npz"


_SMALL = {"train": 400, "valid": 20, "test": 20}


def _spread(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.4f}"
    return f"{mean} ± {statistics.stdev(values):.4f}" if len(values) > 1 else mean


_NOTE = (
    "Filtered ranks of both ends among all entities, ties in the middle; the epoch with the best validation "
    "MRR. ± is the standard deviation over the seeds. A run has one thread; others ran beside it, so seconds "
    "are no measure of speed."
)
CASES = [
    Study(
        "quality_fb15k237",
        "knowledge graphs: filtered test ranks on FB15k-237",
        partial(table, FB15K237, "fb15k237.npz"),
        note=_NOTE,
    ),
    Study(
        "quality_partitions",
        "knowledge graphs: FB15k-237 in one partition and in several, width 128 (256 on a CPU)",
        partial(table, PARTITIONS, "fb15k237.npz"),
        note=_NOTE,
    ),
    Study(
        "quality_wn18rr",
        "knowledge graphs: filtered test ranks on WN18RR",
        partial(table, WN18RR, "wn18rr.npz"),
        note=_NOTE,
    ),
    Study(
        "quality_rgcn",
        "knowledge graphs: filtered test ranks of R-GCN with DistMult on FB15k-237",
        partial(table, RGCN, "fb15k237.npz"),
        note=_NOTE,
    ),
]
