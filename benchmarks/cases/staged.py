"""CAGNET's layouts on 4 ranks: words that a rank receives in an epoch beside the formula, and what it holds.

`grid` gathers (1-D, and 1.5-D of replication 2), `staged` has rows of others come block by block (1-D), or
blocks of A along rows and columns of features along columns of the grid (2-D).
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import weft
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write_for
from benchmarks.workers import Run, launch, median
from weft.stores.sliced import slice_bounds
from weft.strategies.base import strategies
from weft.train.workers.run_parts import cut

WORKERS = 4
HIDDEN = 128
MODEL: dict[str, Any] = {"layers": 3, "hidden": HIDDEN, "dropout": 0.5}
EPOCHS = 4
KINDS = ("gather", "reduce", "stage", "matrix", "turn")
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "grid 4 x 1: 1-D, gathered": ("grid", {"rows": WORKERS}),
    "grid 2 x 2: 1.5-D, c = 2": ("grid", {"columns": 2}),
    "staged 1d": ("staged", {"form": "1d"}),
    "staged 2d: SUMMA": ("staged", {"form": "2d"}),
}


def rows() -> Iterator[str]:
    """Give one row per layout: words a rank and epoch, measured and due, and the memory of an epoch."""
    graph = real("cora" if tiny() else "pubmed", symmetrise=True)
    graph = graph.with_data(x=graph.x if isinstance(graph.x, Tensor) else graph.x.to_dense())
    widths = [HIDDEN, graph.num_classes]  # the aggregate of the inputs is remembered
    yield "| layout | words a rank | due | equal | peak of an epoch, MiB a rank | epoch |"
    yield "|---|---|---|---|---|---|"
    with workspace() as folder:
        runs = [_run(graph, folder, name) for name in LAYOUTS]
        for name, result in zip(LAYOUTS, launch(runs, WORKERS)):
            words, due = _words(result), 2 * sum(_due(graph, name, width) for width in widths)
            peak = max(result["epoch_peak"]) / 2**20
            yield (
                f"| {name} | {words:,.0f} | {due:,.0f} | {'yes' if words == due else 'NO'} | {peak:.1f} | "
                f"{median(result) * 1e3:,.0f} ms |"
            )


def _run(graph: weft.Graph, folder: Path, name: str) -> Run:
    strategy, options = LAYOUTS[name]
    place = write_for(folder / name.split(":")[0].replace(" ", "_"), graph, WORKERS, strategy, **options)
    shape: dict[str, Any] = {"model_options": MODEL, "epochs": EPOCHS, "warm": 1, "memory": True}
    return Run(name, place, strategy, options, **shape)


def _words(result: dict[str, Any]) -> float:
    received = sum(each["bytes_received"] for each in result["volumes"] if each["kind"] in KINDS)
    return received / 4 / EPOCHS / WORKERS


def _due(graph: weft.Graph, name: str, width: int) -> float:
    """Return the words that a rank receives on average for an aggregate of rows so wide, one way."""
    if "2 x 2" in name:
        return 2 * graph.num_nodes * width / WORKERS
    if "SUMMA" not in name:
        return (WORKERS - 1) * graph.num_nodes * width / WORKERS
    side = math.isqrt(WORKERS)
    strategy, options = LAYOUTS[name]
    own = torch.bincount(cut(graph, WORKERS, strategies[strategy], options, workers=WORKERS).parts)
    columns = [stop - start for start, stop in pairwise(slice_bounds(width, side))]
    stays = sum(int(count) * columns[rank % side] for rank, count in enumerate(own.tolist()))
    turned = 2 * (graph.num_nodes * width - stays)
    staged = (side - 1) * graph.num_nodes * width
    matrix = (side - 1) * (graph.num_edges + side * graph.num_nodes)
    return (staged + matrix + turned) / WORKERS


CASES = [
    Study(
        "staged_words",
        "words and memory of CAGNET's layouts on 4 ranks, SAGE 3 x 128, pubmed",
        rows,
        note="From the ledger, forward and backward, integers of A among them; the features, which travel "
        "once, are apart. The peak is that of the resident size above what the rank held before the epoch.",
    )
]
