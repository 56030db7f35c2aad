"""Neighbourhood sampling, edges a second: one thread and two, beside pyg-lib where it is installed."""

import functools
import importlib.util
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from benchmarks.graphs import rmat
from benchmarks.measure import load_average
from weft.samplers import NeighborSampler

BATCH = 1024
BATCHES = 256  # an epoch over all nodes
ROUNDS = 9
WARM = 3  # some seconds before processor and memory are at speed
# Measured on a 2.8 GHz Xeon with pyg-lib 0.9 built from source, one thread: the better end of its range.
PYG_LIB = {(15, 10, 5): 9.4, (20, 20, 20): 12.7}


class SamplerCase:
    """Millions of edges a second of one fanout. Run by itself: threads are the point, not contenders."""

    must, goal = 5.0, 8.0

    def __init__(self, fanout: tuple[int, ...]) -> None:
        self.fanout = fanout
        self.name = "sampler_" + "_".join(map(str, fanout))
        self.title = f"neighbour sampling {fanout}, batch {BATCH:,}, R-MAT 2^18 nodes, 8 M edges"

    def run(self, threads: int) -> dict[str, Any]:
        """Return edges a second, medians over rounds, and the ratio to pyg-lib."""
        from benchmarks.run import environment

        print(f"\n{self.title}")
        before, torch_threads = load_average(), torch.get_num_threads()
        torch.set_num_threads(1)
        sampler, batches = NeighborSampler(rmat(), list(self.fanout)), seed_batches()
        steps = {"weft, 1 thread": lambda: edges_of(sampler, batches)}
        steps["weft, 2 threads"] = lambda: edges_by_threads(sampler, batches, 2)
        if importlib.util.find_spec("pyg_lib"):
            steps["pyg-lib, 1 thread"] = functools.partial(edges_of_pyg_lib, self.fanout, batches)
        rates = measured(steps)
        torch.set_num_threads(torch_threads)
        return self._result(rates, before, environment(threads))

    def _result(self, rates: dict[str, list[float]], load: float, where: dict[str, Any]) -> dict[str, Any]:
        middle = {name: statistics.median(found) for name, found in rates.items()}
        one, two = middle["weft, 1 thread"], middle["weft, 2 threads"]
        rival = middle.get("pyg-lib, 1 thread", PYG_LIB[self.fanout])
        table = ["| | million edges/s | spread |", "|---|---|---|"]
        table += [f"| {name} | {middle[name]:.1f} | {min(r):.1f}–{max(r):.1f} |" for name, r in rates.items()]
        if "pyg-lib, 1 thread" not in rates:
            table.append(f"| pyg-lib, 1 thread, as measured before on a 2.8 GHz Xeon | {rival} | |")
        compares = "" if "pyg-lib, 1 thread" in rates else ", which compares machines, too"
        note = (
            f"**{one / rival:.1f}×** pyg-lib{compares} (required {self.must:g}, aim {self.goal:g}); "
            f"two threads **{two / one:.2f}×** one (required 1.75, aim 1.95)."
        )
        print("\n".join(["  " + line for line in [*table[2:], note]]))
        return {
            "case": self.name,
            "title": self.title,
            "table": table,
            "note": note,
            "rates": rates,
            "ratio": one / rival,
            "scaling": two / one,
            "load_before": round(load, 2),
            "environment": where,
        }


def measured(steps: dict[str, Any]) -> dict[str, list[float]]:
    """Return millions of edges a second of each step, taken by turns after rounds that do not count."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(WARM + ROUNDS):
        for name, step in steps.items():
            start = time.perf_counter()
            edges = step()
            if turn >= WARM:
                rates[name].append(edges / (time.perf_counter() - start) / 1e6)
    return rates


def seed_batches() -> list[Tensor]:
    """Return the seeds of each batch, the same for all."""
    order = torch.randperm(rmat().num_nodes, generator=torch.Generator().manual_seed(0))
    return [part.contiguous() for part in order[: BATCH * BATCHES].split(BATCH)]  # type: ignore[no-untyped-call]


def edges_of(sampler: NeighborSampler, batches: list[Tensor]) -> int:
    """Return the edges of all batches, sampled one after the other."""
    return sum(sampler.sample(seeds).num_edges for seeds in batches)


def edges_by_threads(sampler: NeighborSampler, batches: list[Tensor], threads: int) -> int:
    """Return the edges of all batches, sampled by several threads."""
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda seeds: sampler.sample(seeds).num_edges, batches))


def edges_of_pyg_lib(fanout: tuple[int, ...], batches: list[Tensor]) -> int:
    """Return the edges that pyg-lib draws for the same batches, each node drawn for once."""
    import pyg_lib

    graph, total = rmat(), 0
    columns = graph.indices.long()
    for seeds in batches:
        found = pyg_lib.sampler.neighbor_sample(graph.indptr, columns, seeds, list(fanout), csc=True)
        total += found[0].numel()
    return total


CASES = [SamplerCase((15, 10, 5)), SamplerCase((20, 20, 20))]
