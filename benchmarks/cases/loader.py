"""Batches for training: how fast they are prepared, and an epoch on them, beside PyG's loader.

PyG's `NeighborLoader` needs pyg-lib or torch-sparse. Where neither is installed its seconds are those
measured before on a 2.8 GHz Xeon: torch 2.13.0, PyG 2.8.1, torch-sparse 0.6.18, the same graph and model.
"""

import functools
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from benchmarks.graphs import communities, real, tiny
from benchmarks.measure import load_average
from weft.graph import Graph
from weft.samplers import Batch, Loader, NeighborSampler

FANOUT = [15, 10, 5]
BATCH, BATCHES, WIDTH, CLASSES, HIDDEN = 1024, 40, 100, 47, 128
ROUNDS = 5
ELSEWHERE = "No sampler of PyG's is installed here: the ratio compares machines, too."
MEASURED = {"prepare": 4.1, "epoch": 22.7}  # seconds of the best number of workers


class LoaderCase:
    """Seconds of 40 batches, by weft's loader and by PyG's at its best number of workers."""

    def __init__(self, name: str, title: str, what: str, *, must: float, goal: float) -> None:
        self.name, self.title, self.what, self.must, self.goal = name, title, what, must, goal

    def run(self, threads: int) -> dict[str, Any]:
        """Return medians over rounds, taken by turns, and the ratio to the best rival."""
        from benchmarks.run import environment

        print(f"\n{self.title}")
        load, waits = load_average(), list[float]()
        steps = preparing(threads) if self.what == "prepare" else training(threads, waits)
        seconds = by_turns(steps)
        # The first round does not count.
        share = sum(waits[1:]) / sum(next(iter(seconds.values()))) if waits else None
        return self._result(seconds, load, share, environment(threads))

    def _result(
        self, seconds: dict[str, list[float]], load: float, share: float | None, where: dict[str, Any]
    ) -> dict[str, Any]:
        middle = {name: statistics.median(found) for name, found in seconds.items()}
        ours = min(value for name, value in middle.items() if name.startswith("weft"))
        rivals = [value for name, value in middle.items() if name.startswith("PyG")]
        table = ["| | seconds | spread |", "|---|---|---|"]
        table += [
            f"| {name} | {middle[name]:.2f} | {min(s):.2f}–{max(s):.2f} |" for name, s in seconds.items()
        ]
        if not rivals:
            table.append(
                f"| PyG NeighborLoader, as measured before on a 2.8 GHz Xeon | {MEASURED[self.what]} | |"
            )
        ratio = min(rivals, default=MEASURED[self.what]) / ours
        note = f"**{ratio:.1f}×** (required {self.must:g}, aim {self.goal:g}). "
        note += "Rivals ran in the same process." if rivals else ELSEWHERE
        if share is not None:
            note += (
                f" Training waited for batches **{share:.1%}** of the epoch (required below 10 %, aim 3 %)."
            )
        if tiny():
            note = "A small graph, to see it run; no ratio."
        print("\n".join("  " + line for line in [*table[2:], note]))
        return {
            "case": self.name,
            "title": self.title,
            "table": table,
            "note": note,
            "seconds_by_round": seconds,
            "ratio": ratio,
            "wait_share": share,
            "load_before": round(load, 2),
            "environment": where,
        }


@functools.cache
def graph() -> Graph:
    """Return web_google in both directions with 100 random features and 47 random classes."""
    found = communities(100_000, 1_000_000, features=4) if tiny() else real("web_google").symmetrise()
    random = torch.Generator().manual_seed(0)
    nodes = found.num_nodes
    return found.with_data(
        x=torch.randn(nodes, WIDTH, generator=random), y=torch.randint(CLASSES, (nodes,), generator=random)
    )


def seeds() -> Tensor:
    """Return the nodes of 40 batches."""
    order = torch.randperm(graph().num_nodes, generator=torch.Generator().manual_seed(1))
    return order[: BATCH * BATCHES]


def by_turns(steps: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the seconds of each step, by turns, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    rounds = 1 if tiny() else ROUNDS
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def preparing(threads: int) -> dict[str, Callable[[], object]]:
    """Return what prepares all batches: neighbours, their features, the labels."""

    def ours(convert: Callable[[Batch], Any] | None) -> int:
        sampler = NeighborSampler(graph(), FANOUT, expand="hop" if convert is None else "once")
        loader = Loader(sampler, seeds(), batch_size=BATCH, threads=threads, convert=convert)
        return sum(1 for _ in loader)

    steps: dict[str, Callable[[], object]] = {
        f"weft Loader, {threads} threads": lambda: ours(None),
        f"weft Loader, {threads} threads, as PyG's Data": lambda: ours(Batch.to_pyg),
    }
    for workers in (0, 2) if pyg_samples() else ():
        loader = pyg_loader(workers)
        steps[f"PyG NeighborLoader, {workers} workers"] = lambda held=loader: sum(1 for _ in held)
    return steps


def training(threads: int, waits: list[float]) -> dict[str, Callable[[], object]]:
    """Return what trains GraphSAGE, three layers of 128, on all batches; what weft waited goes to `waits`."""
    torch.manual_seed(0)
    mine = weft.nn.Stack(WIDTH, CLASSES, layer="sage", layers=3, hidden=HIDDEN, dropout=0.0)
    theirs = _pyg_model()
    loader = Loader(NeighborSampler(graph(), FANOUT), seeds(), batch_size=BATCH, threads=threads)
    as_pyg = NeighborSampler(graph(), FANOUT, expand="once")
    bridge = Loader(as_pyg, seeds(), batch_size=BATCH, threads=threads, convert=Batch.to_pyg)

    def ours() -> None:
        before = loader.seconds["wait"]
        epoch(mine, loader, lambda model, batch: (model(batch.blocks, batch.x), batch.y))
        waits.append(loader.seconds["wait"] - before)

    steps: dict[str, Callable[[], object]] = {"weft, model and loader": ours}
    if theirs is not None:
        steps["weft's loader, PyG's model as it is"] = functools.partial(epoch, theirs, bridge, _pyg_step)
        for workers in (0, 2) if pyg_samples() else ():
            steps[f"PyG, {workers} workers"] = functools.partial(
                epoch, theirs, pyg_loader(workers), _pyg_step
            )
    return steps


def epoch(model: nn.Module, loader: Any, step: Callable[[Any, Any], tuple[Tensor, Tensor]]) -> None:
    """Train for an epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        out, y = step(model, batch)
        F.cross_entropy(out, y).backward()
        optimizer.step()


def _pyg_step(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
    return out, batch.y[: batch.batch_size]


def _pyg_model() -> nn.Module | None:
    if importlib.util.find_spec("torch_geometric") is None:
        return None
    from torch_geometric.nn import GraphSAGE

    model: nn.Module = GraphSAGE(WIDTH, HIDDEN, num_layers=3, out_channels=CLASSES)
    return model


def pyg_samples() -> bool:
    """Return whether PyG has a sampler to work with."""
    return any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse"))


def pyg_loader(workers: int) -> Any:
    """Return PyG's loader of the same batches."""
    from torch_geometric.loader import NeighborLoader

    data = graph().to_pyg()
    return NeighborLoader(
        data, FANOUT, seeds(), batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0
    )


WHERE = "web_google in both directions, 100 features, 40 batches of 1,024, fanout (15, 10, 5)"
CASES = [
    LoaderCase("loader_web_google", f"prepare batches, {WHERE}", "prepare", must=8.0, goal=15.0),
    LoaderCase(
        "epoch_sampled_web_google", f"epoch of SAGE 3 × 128 on the CPU, {WHERE}", "epoch", must=3.0, goal=6.0
    ),
]
