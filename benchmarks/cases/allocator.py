"""An epoch and its memory with tensors as the `weft` command takes them, and as torch and glibc would."""

import statistics
from collections.abc import Iterator

from benchmarks.command import trained
from benchmarks.graphs import tiny
from benchmarks.measure import Study

WAYS = {
    "huge pages, memory given back (as `weft` does)": {},
    "huge pages alone": {"MALLOC_MMAP_THRESHOLD_": str(32 << 20)},
    "neither": {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "THP_MEM_ALLOC_ENABLE": "0"},
}
TURNS = 3


def rows() -> Iterator[str]:
    """Give one row per way: the median of an epoch and the largest peak of some runs, by turns."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in WAYS}
    for _ in range(1 if tiny() else TURNS):
        for name, environment in WAYS.items():
            found[name].append(_train(environment))
    yield "| | epoch | peak memory |"
    yield "|---|---|---|"
    for name, runs in found.items():
        seconds, peak = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
        yield f"| {name} | {seconds * 1e3:.0f} ms | {peak / 2**20:,.0f} MiB |"


def _train(environment: dict[str, str]) -> tuple[float, int]:
    """Return seconds of an epoch and peak memory of a run of the command in a process of its own."""
    settings = [f"data.nodes={2_000 if tiny() else 100_000}", "data.name=community", "model.hidden=128"]
    settings += ["model.name=sage", "train.epochs=10", "train.eval_every=10"]
    summary = trained(settings, environment, without=WAYS["neither"])
    return summary["epoch_seconds_median"], summary["peak_memory_bytes"]


CASES = [
    Study("allocator", "epoch of SAGE 2 x 128 on 100,000 nodes by how large tensors are allocated", rows)
]
