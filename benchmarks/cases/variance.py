"""Samplers that draw fewer neighbours: what they save, and whether accuracy stays."""

from collections.abc import Iterable
from typing import Any

import weft
from benchmarks.graphs import communities, real, tiny
from benchmarks.measure import Study
from weft.graph import Graph
from weft.samplers import LaborSampler, Loader, NeighborSampler
from weft.train.settings import MetricName

SEEDS = (0, 1, 2)
EPOCHS = {"tolokers": 20, "fb100_cornell5": 3}
CONTROLLED = {
    "all neighbours (exact)": {"name": "sampled", "fanout": [-1, -1]},
    "plain fanout 2": {"name": "sampled", "fanout": [2, 2]},
    "control variate, fanout 2": {"name": "control_variate", "fanout": [2, 2]},
}
LABOR = {
    "uniform": {"name": "sampled", "fanout": [10, 10]},
    "labor": {"name": "sampled", "fanout": [10, 10], "sampler": {"name": "labor"}},
}


def controlled() -> Iterable[str]:
    """Give the test scores of each way of seeing neighbours, at the best epoch on validation nodes."""
    yield "| neighbours | ROC-AUC | below exact | accuracy |"
    yield "|---|---|---|---|"
    best = 0.0
    for name, strategy in CONTROLLED.items():
        found = [_trained("tolokers", {**strategy, "batch_size": 512}, seed, "roc_auc") for seed in SEEDS]
        accuracy, auc = (sum(each[i] for each in found) / len(found) for i in range(2))
        best = auc if name.startswith("all") else best
        yield f"| {name} | {auc:.2%} | {100 * (best - auc):+.2f} points | {accuracy:.2%} |"


def labor() -> Iterable[str]:
    """Give nodes of a batch and test accuracy with uniform and with labor draws."""
    graph = _graph("fb100_cornell5")
    yield "| draws | nodes a batch | fewer | test accuracy |"
    yield "|---|---|---|---|"
    nodes: dict[str, float] = {}
    for name, strategy in LABOR.items():
        kind: Any = LaborSampler if name == "labor" else NeighborSampler
        loader = Loader(kind(graph, [10, 10]), batch_size=256, threads=0)
        nodes[name] = sum(loader.batch(0, step).num_nodes for step in range(len(loader))) / len(loader)
        scores = [_trained("fb100_cornell5", {**strategy, "batch_size": 256}, seed)[0] for seed in SEEDS]
        share, spread = nodes["uniform"] / nodes[name], f"{min(scores):.2%}–{max(scores):.2%}"
        mean = sum(scores) / len(scores)
        yield f"| {name} | {nodes[name]:,.0f} | {share:.2f}× | {mean:.2%} ({spread}) |"


def _trained(
    name: str, strategy: dict[str, Any], seed: int, metric: MetricName = "auto"
) -> tuple[float, float]:
    done = weft.train(
        _graph(name),
        "sage",
        layers=2,
        hidden=64,
        dropout=0.0,
        lr=0.01,
        epochs=2 if tiny() else EPOCHS[name],
        metric=metric,
        seed=seed,
        strategy=strategy,
    )
    return done.metrics["test"]["accuracy"], done.metrics["test"].get("roc_auc", 0.0)


def _graph(name: str) -> Graph:
    return communities(60_000, 1_800_000, features=16, classes=2) if tiny() else real(name)


CASES = [
    Study(
        "control_variate_tolokers",
        "histories instead of neighbours: GraphSAGE 2 × 64 on tolokers (88 neighbours a node), batch 512",
        controlled,
        "Test scores at the best epoch on the validation nodes, mean of three seeds, evaluated exactly; "
        "ROC-AUC is what this data set is judged by. Required: control variate with fanout 2 within 0.5 "
        "points of exact, plain fanout 2 not.",
    ),
    Study(
        "labor_cornell5",
        "labor draws: GraphSAGE 2 × 64 on fb100_cornell5, batch 256, fanout (10, 10)",
        labor,
        "Nodes of an epoch's batches, mean; test accuracy of three seeds. Required: at least 1.9× fewer "
        "nodes at equal accuracy.",
    ),
]
