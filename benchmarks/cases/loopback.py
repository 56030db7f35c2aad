"""An exact epoch of two ranks on two cores against half of an epoch of one process with one thread."""

import os
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, launch, median

MODEL: dict[str, Any] = {"layers": 3, "hidden": 128, "dropout": 0.5}
ROUNDS = 3
MOST = 1.25


def rows() -> Iterator[str]:
    """Give epoch times of both, taken by turns, and their ratio."""
    graph = communities(100_000, 4_000_000, classes=64, homophily=0.97, features=64)
    rounds = 1 if tiny() else ROUNDS
    yield "| | epoch | edges cut | MiB an epoch |"
    yield "|---|---|---|---|"
    with workspace() as folder:
        parts = write(folder / "parts", graph, 2, name="metis")
        graph.save(folder / "graph")
        cut = _cut_share(folder / "parts")
        alone = Run("one process, one thread", str(folder / "graph"), "single", model_options=MODEL)
        pair = Run("two ranks", parts, "halo", {"exchange": "exact"}, model_options=MODEL)
        del graph
        times: dict[str, list[float]] = {"alone": [], "pair": []}
        for _ in range(rounds):
            times["alone"].append(median(launch([alone], 1)[0]))
            (result,) = launch([pair], 2)
            times["pair"].append(median(result))
    one, two = (statistics.median(held) for held in times.values())
    sent = sum(volume["bytes_sent"] for volume in result["volumes"]) / result["epochs"]
    yield f"| one process, one thread | {one * 1e3:.0f} ms | – | – |"
    yield f"| two ranks, exact | {two * 1e3:.0f} ms | {cut:.1%} | {sent / 2**20:.1f} |"
    verdict = "holds" if two / (one / 2) <= MOST else "does not hold"
    cores = len(os.sched_getaffinity(0))
    told = f"**{two / (one / 2):.2f}** (at most {MOST}: {verdict}; {cores} cores)"
    yield f"| ratio to half of one process | {told} | | |"


def _cut_share(folder: Any) -> float:
    from weft.graph.parts.partition import read_partition

    quality = read_partition(folder).quality
    return quality.cut_share if quality is not None else float("nan")


CASES = [
    Study(
        "loopback",
        "exact epoch, 2 ranks on 2 cores, SAGE 3 x 128, communities of 100,000 nodes and 4 M edges, low cut",
        rows,
        note="Medians of epochs, then of rounds; both by turns, one thread a rank.",
    )
]
