"""How long 4 ranks take from their start to the first step on a partitioned graph, and their memory."""

from collections.abc import Iterator
from typing import Any

from benchmarks.graphs import communities
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, launch

WORKERS = 4
MODEL: dict[str, Any] = {"layers": 3, "hidden": 128, "dropout": 0.5}
SECONDS = 12.0
MEMORY = 1.3


def rows() -> Iterator[str]:
    """Give seconds from launch to ready, and memory a rank against its shards and what autograd keeps."""
    yield "| | measured | required |"
    yield "|---|---|---|"
    with workspace() as folder:
        graph = communities(200_000, 10_000_000, classes=32, homophily=0.9, features=64)
        edges = graph.num_edges
        parts = write(folder / "parts", graph, WORKERS, name="metis")
        del graph
        communities.cache_clear()
        run = Run("start", parts, "halo", {"exchange": "exact"}, model_options=MODEL, memory=True, epochs=3)
        (result,) = launch([run], WORKERS)
    yield f"| start of 4 ranks, {edges:,} edges | {result['start_seconds']:.1f} s | < {SECONDS:g} s |"
    yield f"| of it: reading shards, planning | {result['setup_seconds']:.1f} s | |"
    for rank in range(WORKERS):
        shard, kept, peak = (result[name][rank] for name in ("shard_bytes", "activations", "memory_peak"))
        halo = result["halo_rows"][rank] * MODEL["hidden"] * 4
        ratio = peak / max(1, shard + kept + halo)
        yield (
            f"| rank {rank}: {shard / 2**20:,.0f} MiB of shards + {kept / 2**20:,.0f} MiB kept for backward "
            f"+ {halo / 2**20:,.0f} MiB of halo rows in a layer "
            f"| peak {peak / 2**20:,.0f} MiB, {ratio:.2f}× | ≤ {MEMORY}× |"
        )


CASES = [
    Study(
        "startup",
        "start-up and memory of 4 ranks, SAGE 3 x 128, communities of 200,000 nodes and 10 M edges",
        rows,
        note="Peak resident size above that of a rank with everything imported and nothing read.",
    )
]
