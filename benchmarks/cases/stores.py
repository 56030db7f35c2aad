"""Feature caches: the share of rows found in a cache of some size, for every way of choosing its rows."""

from typing import Any

import torch
from torch import Tensor

from benchmarks.graphs import communities, real, rmat, tiny
from benchmarks.measure import load_average
from weft.graph import Graph
from weft.samplers import Loader, NeighborSampler
from weft.stores import frequency, importance, out_degree
from weft.stores.cached import best
from weft.stores.rankers import random_order

FANOUT = (15, 10, 5)
BATCH = 1024
SIZES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
WIDTH = 100  # float32 columns of a row, for bytes
AVOIDED = 0.95


class CacheCase:
    """Hit rates of one graph. Nothing is timed: reads are counted, so load of the machine is no matter."""

    must, goal = AVOIDED, 0.968

    def __init__(self, name: str, title: str, make: Any, *, share: float) -> None:
        self.name, self.make, self.share = f"cache_{name}", make, share
        self.title = f"feature cache, {title}, fanout {FANOUT}, batch {BATCH:,}"

    def run(self, threads: int) -> dict[str, Any]:
        """Return the share of reads that a cache of each size and ranker answers."""
        from benchmarks.run import environment

        print(f"\n{self.title}")
        load, graph = load_average(), self.make()
        sampler = NeighborSampler(graph, list(FANOUT))
        seeds = training_seeds(graph, self.share)
        reads = counted_reads(sampler, seeds)
        scores = {
            "frequency in five epochs drawn before": frequency(sampler, seeds, epochs=5, batch_size=BATCH),
            "out-degree (PaGraph)": out_degree(graph),
            "importance, 2 hops (AliGraph)": importance(graph, hops=2),
            "random": random_order(graph.num_nodes),
            "the epoch itself (bound)": reads,
        }
        rates = {name: [hit_rate(reads, score, size) for size in SIZES] for name, score in scores.items()}
        return self._result(rates, graph, int(reads.sum()), load, environment(threads))

    def _result(
        self, rates: dict[str, list[float]], graph: Graph, rows: int, load: float, where: dict[str, Any]
    ) -> dict[str, Any]:
        table = ["| rows held | " + " | ".join(f"{size:.0%}" for size in SIZES) + " |"]
        table.append("|---" * (len(SIZES) + 1) + "|")
        for name, found in rates.items():
            table.append(f"| {name} | " + " | ".join(f"{rate:.1%}" for rate in found) + " |")
        enough = {name: first_size(found) for name, found in rates.items()}
        ours = enough["frequency in five epochs drawn before"]
        held = "no size shown" if ours is None else f"{ours:.0%} of the rows held"
        note = (
            f"An epoch reads {rows:,} rows, {rows * WIDTH * 4 / 2**30:.1f} GiB at {WIDTH} float32 columns, "
            f"of {graph.num_nodes:,}. At least {AVOIDED:.0%} of these bytes are avoided with **{held}** "
            "(by frequency); rows held by out-degree: "
            f"{_shown(enough['out-degree (PaGraph)'])}, by importance: "
            f"{_shown(enough['importance, 2 hops (AliGraph)'])}, at random: {_shown(enough['random'])}."
        )
        print("\n".join("  " + line for line in [*table, note]))
        return {
            "case": self.name,
            "title": self.title,
            "table": table,
            "note": note,
            "sizes": SIZES,
            "hit_rates": rates,
            "rows_read": rows,
            "enough_at": enough,
            "load_before": round(load, 2),
            "environment": where,
        }


def training_seeds(graph: Graph, share: float) -> Tensor:
    """Return the nodes of a training set: a random share of all."""
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    return order[: max(1, int(share * graph.num_nodes))].sort().values


def counted_reads(sampler: NeighborSampler, seeds: Tensor) -> Tensor:
    """Return how often an epoch reads the row of each node, [N]."""
    counts = torch.zeros(sampler.graph.num_nodes, dtype=torch.float64)
    loader = Loader(sampler, seeds, batch_size=BATCH, threads=0)
    for step in range(len(loader)):
        counts += torch.bincount(loader.batch(0, step).nodes, minlength=len(counts))
    return counts


def hit_rate(reads: Tensor, scores: Tensor, size: float) -> float:
    """Return the share of the reads that a cache of the best scores answers."""
    held = best(scores, round(size * len(reads)))
    return float(reads[held].sum() / reads.sum())


def first_size(rates: list[float]) -> float | None:
    """Return the smallest size that avoids enough."""
    return next((size for size, rate in zip(SIZES, rates) if rate >= AVOIDED), None)


def _shown(size: float | None) -> str:
    return f"{size:.0%}" if size is not None else f"more than {SIZES[-1]:.0%}"


def _web() -> Graph:
    return communities(100_000, 1_000_000, features=4) if tiny() else real("web_google")


def _rmat() -> Graph:
    return communities(100_000, 1_000_000, features=4) if tiny() else rmat()


CASES = [
    CacheCase("web_google", "web_google, a tenth of the nodes trained on", _web, share=0.1),
    CacheCase("rmat", "R-MAT 2^18 nodes, 8 M edges, a tenth of the nodes trained on", _rmat, share=0.1),
]
