"""What a rank needs at most in an epoch when a share of the halo is drawn, against every row of it."""

from collections.abc import Iterator
from typing import Any

from benchmarks.graphs import communities
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, launch

WORKERS = 4
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "SAGE": ("sage", {"layers": 3, "hidden": 128, "dropout": 0.5}),
    "SAGE max": ("sage", {"layers": 3, "hidden": 128, "dropout": 0.5, "aggregate": "max"}),
    "GAT": ("gat", {"layers": 3, "hidden": 128, "heads": 4, "dropout": 0.5}),
}
EXCHANGES = {"exact": {"name": "exact"}, "sampled": {"name": "sampled", "p": 0.1}}
GRAPHS = {"10": (100_000, 1_000_000), "50": (100_000, 5_000_000)}


def rows() -> Iterator[str]:
    """Give one row per model and number of edges a node: the peak of an epoch with both exchanges."""
    yield "| model | edges a node | exact MiB | p = 0.1 MiB | of exact |"
    yield "|---|---|---|---|---|"
    for degree, (nodes, edges) in GRAPHS.items():
        # Few edges stay inside a community, so that the halo is large.
        graph = communities(nodes, edges, classes=32, homophily=0.5, features=64)
        with workspace() as folder:
            path = write(folder / "parts", graph, WORKERS, name="hash")
            for name, (model, options) in MODELS.items():
                exact, drawn = (_peak(path, model, options, exchange) for exchange in EXCHANGES.values())
                yield f"| {name} | {degree} | {exact:,.0f} | {drawn:,.0f} | {drawn / exact:.2f} |"


def _peak(folder: str, model: str, options: dict[str, Any], exchange: dict[str, Any]) -> float:
    """Return the peak of the rank that needs most, in MiB."""
    run = Run("halo", folder, "halo", {"exchange": exchange}, model, options, epochs=2, warm=1, memory=True)
    (result,) = launch([run], WORKERS)
    return max(*result["epoch_peak"], 0) / 2**20


CASES = [
    Study(
        "halo_memory",
        "peak memory of an epoch a rank, every halo row against a tenth of them, 4 ranks, hash partition",
        rows,
        note="Above what a rank holds when an epoch begins: its shard, its features and the model.",
    )
]
