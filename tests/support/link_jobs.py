"""What ranks do in the tests of pairs on batches: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import MODELS, local_graph
from pair_jobs import pair_graph
from rated import rated
from torch import Tensor, nn

from weft.comm.group import Group
from weft.graph.graph import Graph
from weft.strategies.base import Strategy
from weft.strategies.halo.halo import Halo
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.single import Single
from weft.tasks.base import Task
from weft.tasks.choose import TaskChoice
from weft.train.model import adapt, build_model

WRITES = "author writes paper"
BOTH = {"name": "degree", "count": 2, "side": "both"}
HARD = {"name": "hard", "pool": 9, "count": 3, "side": "src"}
# Graph, model, task, strategy. Few pairs a batch, so that with four ranks some have none in a step.
Case = tuple[str, str, dict[str, Any], dict[str, Any]]
CASES: list[Case] = [
    ("directed", "gcn", {}, {"fanout": -1, "batch_size": 20}),
    ("mirrored", "gcn", {"negatives": {"name": "joint", "count": 5}, "loss": "margin"}, {"fanout": [3, 2]}),
    ("hub", "gat", {"negatives": BOTH, "loss": "bpr", "score": "mlp"}, {"fanout": [4, 2], "prepare": 0}),
    ("isolated", "gin", {"negatives": HARD, "score": "bilinear"}, {"fanout": [2, 2], "batch_size": 3}),
    ("mirrored", "gin", {"negatives": "inbatch", "loss": "infonce"}, {"fanout": [3, 3]}),
    (
        "typed both ways",
        "rgcn",
        {"target": WRITES, "negatives": {"exclude": "known", "count": 2}, "score": "distmult"},
        {"fanout": [2, 2], "batch_size": 6},
    ),
    ("directed", "gcn", {"hide": "disjoint", "share": 0.5}, {"fanout": [3, 2], "sampler": "labor"}),
    ("hub", "gcn", {"hide": "none"}, {"fanout": [3, 2]}),
    (
        "directed",
        "gcn",
        {"name": "unsupervised", "walks": 2, "length": 3},
        {"fanout": [3, 2], "batch_size": 40},
    ),
    ("timed", "gin", {"negatives": {"name": "uniform", "count": 2}}, {"fanout": [3, 2], "temporal": True}),
    ("rated", "gcn", {"name": "edge_classification"}, {"fanout": [3, 2], "batch_size": 32}),
    ("rated", "gcn", {"name": "edge_regression", "label": "rating"}, {"fanout": -1, "batch_size": 50}),
]


def links(graph: Graph, **options: Any) -> tuple[Graph, Task]:
    """Return the graph that messages flow along, and the task, of links where nothing else is said."""
    task = TaskChoice.of({"name": "link_prediction", "width": 4, **options}).make(graph)
    task.hides(batches=True)
    return task.prepared(graph), task


def model_for(graph: Any, name: str, task: Task) -> nn.Module:
    """Return a model with the task's head, in 64 bits."""
    kind, options = MODELS[name]
    built = build_model(graph, kind, {"hidden": 8, "layers": 2, **options}, task=task, seed=1)
    return built.to(torch.float64)


def learned(strategy: Strategy, model: nn.Module, epochs: int = 2) -> dict[str, Tensor]:
    """Return the losses of some epochs, the scores and the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = [strategy.epoch(model, optimizer) for _ in range(epochs)]
    names = (strategy.task.metric, *strategy.task.watched)
    scores = strategy.evaluate(model, {name: strategy.task.metrics[name] for name in names})
    told = [value for split in scores.values() for value in split.values()]
    strategy.close()
    found = {"losses": torch.tensor(losses), "scores": torch.tensor(told)}
    return found | {name: value.detach() for name, value in model.named_parameters()}


def equal_to_one_process(group: Group, few: bool = False) -> list[str]:
    """Train on pairs on all ranks and in one process; return where they differ."""
    wrong = []
    for kind, name, task_options, options in CASES[:2] + CASES[4:6] + CASES[8:10] if few else CASES:
        given: dict[str, Any] = {"batch_size": 8, "seed": 3, **options}
        whole = (rated() if kind == "rated" else pair_graph(kind)).to(dtype=torch.float64)
        shown, task = links(whole, **task_options)
        graph = adapt(shown, MODELS[name][0])
        if group.size > 1 and kind == "mirrored":
            given["replicate"] = 0.5
        num_parts = 4 if group.size < 4 else group.size
        local = local_graph(group, graph, (torch.arange(graph.num_nodes) % num_parts).int(), num_parts)
        found = learned(Sampled(local, task=task, group=group, **given), model_for(local, name, task))
        alone = {key: value for key, value in given.items() if key != "replicate"}
        expected = learned(Sampled(graph, task=task, **alone), model_for(graph, name, task))
        for what, value in expected.items():
            off = float((found[what] - value).abs().max()) if value.numel() else 0.0
            if not off <= 1e-9:
                wrong.append(f"{name} on {kind}, {task_options}: {what} differs by {off:.1e}")
    return wrong


def classes_of_edges_on_halo(group: Group) -> dict[str, float]:
    """Train on classes of edges with halos and in one process; return how far apart all that is learned is.

    Whole edges lie with the worker of their target, so that of about half of them the source's row has to be
    brought, and its gradient taken back.
    """
    whole = rated().to(dtype=torch.float64)
    options = {"weights": "balanced", "edge_data": ["known"], "split": {"val": 0.2, "test": 0.2}}
    task = TaskChoice.of({"name": "edge_classification", "width": 4, **options}).make(whole)
    task.hides(batches=False)
    shown = task.prepared(whole)
    local = local_graph(group, shown, (torch.arange(shown.num_nodes) % 4).int(), 4)
    ours = learned(Halo(local, task=task, group=group, seed=3), model_for(local, "gat", task))
    alone = learned(Single(shown, task=task, seed=3), model_for(shown, "gat", task))
    return {name: float((ours[name] - value).abs().max()) for name, value in alone.items()}
