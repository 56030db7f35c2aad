"""Words that the grid moves in an epoch on 4 ranks, from the ledger, beside the closed form they must equal.

For one aggregate of rows of F columns a rank receives (r − 1) · n/P · F words in its column and (c − 1) · n/P
· F in its row, and as many in backward: CAGNET's 1.5-D, of replication c. `staged_words` has 1-D in stages
and 2-D.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import weft
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write_for
from benchmarks.workers import Run, launch, median
from weft.strategies.base import strategies

WORKERS = 4
HIDDEN = 128
MODEL: dict[str, Any] = {"layers": 3, "hidden": HIDDEN, "dropout": 0.5}
EPOCHS = 4
_WORD = 4  # bytes


def rows() -> Iterator[str]:
    """Give one row per grid: words a rank and epoch, measured and due."""
    graph = real("cora" if tiny() else "pubmed", symmetrise=True, normalise_features=True)
    # The second layer's rows are `hidden` wide, the last's one per class; the first's are inputs, whose
    # aggregate is remembered, or transformed where that is narrower.
    first = [] if graph.block().prefers_aggregate_first(graph.x) else [HIDDEN]
    widths = [*first, HIDDEN, graph.num_classes]
    shapes = [(each["rows"], each["columns"]) for each in strategies["grid"].layouts(WORKERS)]
    yield "| grid | words a rank, gathered | due | words a rank, summed | due | equal | epoch |"
    yield "|---|---|---|---|---|---|---|"
    with workspace() as folder:
        runs = [_run(graph, folder, shape) for shape in shapes]
        for shape, result in zip(shapes, launch(runs, WORKERS)):
            yield _row(graph, shape, result, widths)


def _run(graph: weft.Graph, folder: Path, shape: tuple[int, int]) -> Run:
    options = {"rows": shape[0], "columns": shape[1]}
    name = f"{shape[0]}x{shape[1]}"
    place = write_for(folder / name, graph, WORKERS, "grid", **options)
    return Run(name, place, "grid", options, model_options=MODEL, epochs=EPOCHS, warm=1)


def _row(graph: weft.Graph, shape: tuple[int, int], result: dict[str, Any], widths: list[int]) -> str:
    gathered, summed = (_words(result, kind) for kind in ("gather", "reduce"))
    # Both ways. Each row goes to r − 1 and c − 1 others whoever owns it: the mean rank has n/P of them.
    every = 2 * graph.num_nodes * sum(widths)
    due = [(count - 1) * every / WORKERS for count in shape]
    equal = "yes" if [gathered, summed] == due else "NO"
    return (
        f"| {shape[0]} x {shape[1]} | {gathered:,.0f} | {due[0]:,.0f} | {summed:,.0f} | {due[1]:,.0f} | "
        f"{equal} | {median(result) * 1e3:,.0f} ms |"
    )


def _words(result: dict[str, Any], kind: str) -> float:
    received = sum(each["bytes_received"] for each in result["volumes"] if each["kind"] == kind)
    return received / _WORD / EPOCHS / WORKERS


CASES = [
    Study(
        "grid_words",
        "words that a grid of 4 ranks moves in an epoch, SAGE 3 x 128, pubmed",
        rows,
        note="From the ledger, forward and backward; the features, which travel once, are apart.",
    )
]
