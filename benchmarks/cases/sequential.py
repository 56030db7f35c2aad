"""What a rank of `sequential` needs at most in an epoch, and how often rows travel."""

from collections.abc import Iterator
from typing import Any

import torch

import weft
from benchmarks.graphs import communities, tiny
from benchmarks.measure import Study
from benchmarks.partitions import workspace, write
from benchmarks.workers import Run, halo_bytes, launch

PARTS = (1, 2, 4, 8)
PARTS_A_RANK = 4  # a rank holds two remote parts at most, and these are small
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "SAGE": ("sage", {"layers": 3, "hidden": 128, "dropout": 0.5}),
    "GAT": ("gat", {"layers": 3, "hidden": 128, "heads": 4, "dropout": 0.5, "attention_dropout": 0.5}),
}
UNITS = {"SAGE": 2, "GAT": 3}


def workers() -> Iterator[str]:
    """Give one row per model and number of ranks, four parts each: peak memory of an epoch, its traffic."""
    # Few edges stay inside a community, so that a rank reads most of the graph.
    graph = communities(100_000, 3_000_000, classes=32, homophily=0.5, features=64)
    yield "| model | ranks | halo MiB | sequential MiB | × ranks, of one | of halo | units | required |"
    yield "|---|---|---|---|---|---|---|---|"
    with workspace() as folder:
        folders = {
            count: write(folder / str(count), graph, PARTS_A_RANK * count, name="metis") for count in PARTS
        }
        for name, (model, options) in MODELS.items():
            alone = 0.0
            for count, path in folders.items():
                halo, ours = (_epoch(path, count, strategy, model, options) for strategy in _STRATEGIES)
                held, peak = _most(halo), _most(ours)
                alone = alone or peak
                units = 2 * halo_bytes(ours) / max(1.0, halo_bytes(halo)) if count > 1 else 0.0
                yield (
                    f"| {name} | {count} | {held:,.0f} | {peak:,.0f} | {count * peak / alone:.2f} | "
                    f"{peak / held:.2f} | {units:.2f} | {UNITS[name] if count > 1 else ''} |"
                )


def one_process() -> Iterator[str]:
    """Give one row per number of parts, all held by one process: peak memory of an epoch of R-GCN."""
    yield "| strategy | parts | MiB | of single |"
    yield "|---|---|---|---|"
    graph = _typed()
    options = {"layers": 2, "hidden": 64, "dropout": 0.5}
    with workspace() as folder:
        graph.save(folder / "graph")
        (single,) = launch([_run(str(folder / "graph"), "single", "rgcn", options)], 1)
        yield f"| single | | {_most(single):,.0f} | 1.00 |"
        for count in PARTS:
            path = write(folder / str(count), graph, count, name="hash")
            peak = _most(_epoch(path, 1, "sequential", "rgcn", options))
            yield f"| sequential | {count} | {peak:,.0f} | {peak / _most(single):.2f} |"


_STRATEGIES = ("halo", "sequential")


def _epoch(folder: str, count: int, strategy: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
    # A launch a run: what an earlier run left behind would be counted as there already.
    (result,) = launch([_run(folder, strategy, model, options)], count)
    return result


def _run(folder: str, strategy: str, model: str, options: dict[str, Any]) -> Run:
    return Run(strategy, folder, strategy, {}, model, options, epochs=2, warm=1, memory=True)


def _most(result: dict[str, Any]) -> float:
    """Return the peak of the rank that needs most, in MiB."""
    return max(*result["epoch_peak"], 0) / 2**20


def _typed() -> weft.Graph:
    """Return a graph with many (relation, source) pairs: as many as edges, nearly."""
    nodes, edges = (2_000, 20_000) if tiny() else (50_000, 1_000_000)
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    return weft.Graph.from_edges(
        ends,
        num_nodes=nodes,
        edge_type=torch.randint(0, 32, (edges,), generator=generator),
        x=torch.randn(nodes, 64, generator=generator),
        y=torch.randint(0, 8, (nodes,), generator=generator),
        train_mask=torch.rand(nodes, generator=generator) < 0.6,
    )


CASES = [
    Study(
        "sequential_memory",
        "peak memory of an epoch a rank and units of communication, communities of 100,000 nodes, 3 M edges",
        workers,
        note="A unit is one exchange of every halo row of a layer. `halo` makes two in a step.",
    ),
    Study(
        "sequential_parts",
        "peak memory of an epoch of R-GCN 2 x 64 in one process, 50,000 nodes, 1 M edges, 32 relations",
        one_process,
        note="What falls are the rows of (relation, source) pairs, made for one part at a time.",
    ),
]
