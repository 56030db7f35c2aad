"""P3: bytes of training by slices of features against data parallel, by the width of features."""

from collections.abc import Iterable
from typing import Any

import torch

from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, launch
from weft.graph import Graph
from weft.partitioners import partition
from weft.samplers import Loader, NeighborSampler
from weft.train.model import adapt

WORKERS, HIDDEN, BATCH, FANOUT = 4, 32, 1000, [10, 25]
WIDTHS = (25, 50, 100, 200, 400, 800)


def rows() -> Iterable[str]:
    """Give one row per width: bytes of an epoch of both, with gradients, measured and by the formula."""
    both = "MiB | of it gradients | formula"
    yield f"| features | data parallel, {both} | sliced, {both} | sliced / data parallel |"
    yield "|---|---|---|---|---|---|---|---|"
    counts: dict[str, int] = {}
    for width in WIDTHS[:2] if tiny() else WIDTHS:
        graph = adapt(communities(20_000, 400_000, features=width), "gcn")
        counts = counts or counted(graph)
        with workspace() as folder:
            parts = write(folder / "parts", graph, WORKERS, name="hash")
            options = {"fanout": FANOUT, "batch_size": BATCH}
            shape: dict[str, Any] = {"model": "gcn", "model_options": {"layers": 2, "hidden": HIDDEN}}
            runs = [
                Run(name, parts, name, options, epochs=1, warm=1, **shape) for name in ("sampled", "sliced")
            ]
            sampled, sliced = launch(runs, WORKERS)
        steps, later = counts["batches"] // WORKERS, later_weights(graph.num_classes)
        data, slices = sent(sampled, "features", "gradient"), sent(sliced, "push", "pull", "gradient")
        rows_due = 4 * width * counts["remote"] + steps * gradient_bytes(later + width * HIDDEN + 1)
        slices_due = sliced_bytes(counts) + steps * gradient_bytes(later)
        shown = [data, sent(sampled, "gradient"), rows_due, slices, sent(sliced, "gradient"), slices_due]
        yield f"| {width} | " + " | ".join(f"{n / 2**20:.2f}" for n in shown) + f" | {slices / data:.2f} |"


def later_weights(classes: int) -> int:
    """Return the numbers of a step's gradients beside the first weight, with one a parameter to count it."""
    return HIDDEN + HIDDEN * classes + classes + 3


def gradient_bytes(numbers: int) -> int:
    """Return the bytes that all workers send to sum so many numbers, in a ring."""
    return 2 * (WORKERS - 1) * 4 * numbers


def sliced_bytes(counts: dict[str, int]) -> int:
    """Return 2 (P − 1) |V1| H numbers of products, and what is pushed: nodes, edges, degrees, scales."""
    products = 2 * counts["v1"] * HIDDEN * 4
    pushed = 8 * counts["v0"] + 4 * (counts["e1"] + counts["v1"]) + 4 * (counts["v0"] + counts["v1"])
    return (WORKERS - 1) * (products + pushed + 24 * counts["batches"])


def counted(graph: Graph) -> dict[str, int]:
    """Return the rows, destinations and edges of the first blocks of an epoch, and rows of other workers."""
    owner = torch.as_tensor(partition(graph, WORKERS, name="hash").parts)
    sampler = NeighborSampler(graph, FANOUT)
    loader = Loader(sampler, batch_size=BATCH)
    found = dict.fromkeys(("v0", "v1", "e1", "remote", "batches"), 0)
    for step in range(len(loader)):
        seeds = loader.seeds_of(1, step)
        for rank in range(WORKERS):
            batch = sampler.sample(seeds[owner[seeds] == rank], 1, step)
            found["v0"] += batch.num_nodes
            found["v1"] += batch.blocks[0].num_dst
            found["e1"] += batch.blocks[0].num_edges
            found["remote"] += int((owner[batch.nodes] != rank).sum())
            found["batches"] += 1
    return found


def sent(result: dict[str, Any], *kinds: str) -> int:
    """Return the bytes that all workers sent of some kinds."""
    return sum(volume["bytes_sent"] for volume in result["volumes"] if volume["kind"] in kinds)


CASES = [
    Study(
        "sliced_bytes",
        f"bytes of GCN 2 × {HIDDEN} by samples (fanout 10, 25, batch {BATCH:,}) on {WORKERS} workers: slices "
        "of features against rows, communities of 20,000 nodes, 400,000 edges",
        rows,
        "Features of rows travel in data parallel, edges and products of the first layer with slices: "
        "2 (P − 1) V1 H numbers, V0 and E1 ids. Gradients are counted: those of the first layer's weights "
        "travel in data parallel alone, F H more numbers a step. Sampled edges are the same in both and left "
        "out. A first layer with two maps of features (GraphSAGE) sends twice the products.",
    ),
]
