"""Trial runs: small trainings of a few models, timed by phase beside their counted work."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from weft.config import Recipe
from weft.events import Event
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.plan.measure.fit import Observation
from weft.plan.rehearse.rehearsal import rehearse
from weft.plan.rehearse.work import CountedWork
from weft.strategies.base import strategies
from weft.tasks.base import Task
from weft.train.model import adapt, build_model, ready
from weft.train.resolve import Resolved, resolve
from weft.train.trainer import Place, Trainer

_EPOCHS = 12  # the least counts: what else the machine does is not its rate
# Rates are told apart where graphs differ: tiny ones, whose operators take nothing but their call; few edges
# a node and many; rows that are wide, and rows of which little is there.
TRIALS: tuple[dict[str, Any], ...] = (
    {"data": {"nodes": 60, "features": 16}, "model": {"name": "gcn"}},
    {"data": {"nodes": 60, "features": 16}, "model": {"name": "gat", "hidden": 8, "heads": 4}},
    {"data": {"nodes": 2000, "features": 32, "degree": 80.0}, "model": {"name": "sage", "hidden": 32}},
    {
        "data": {"nodes": 2000, "features": 32, "degree": 80.0},
        "model": {"name": "gat", "hidden": 8, "heads": 4},
    },
    {"data": {"nodes": 8000, "features": 128, "degree": 3.0}, "model": {"name": "gcn"}},
    {"data": {"nodes": 8000, "features": 64, "degree": 30.0}, "model": {"name": "gcn"}},
    {"data": {"nodes": 20_000, "features": 64}, "model": {"name": "sage", "hidden": 32}},
    {"data": {"nodes": 20_000, "features": 64}, "model": {"name": "gat", "hidden": 8, "heads": 4}},
    {"data": {"nodes": 4000, "features": 800}, "model": {"name": "gcn"}, "filled": 0.04},
)


@dataclass(frozen=True)
class RehearsedTrial:
    """A trial before it is run: its graph, its task, and the work of an epoch by phase."""

    resolved: Resolved
    graph: Graph
    task: Task
    work: Mapping[str, CountedWork]


def rehearsals() -> Iterator[RehearsedTrial]:
    """Give the trials with their counted work."""
    for trial in TRIALS:
        resolved = resolve(Recipe(train={"device": "cpu"}, strategy={"name": "single"}, **_named(trial)))
        whole = _filled(resolved.open(), trial.get("filled"))
        task = resolved.make_task(whole)
        graph = adapt(task.prepared(whole), resolved.model, resolved.options, task)
        yield RehearsedTrial(resolved, graph, task, rehearse(resolved, graph, workers=1)[0].work[-1])


def observations(trial: RehearsedTrial) -> Iterator[Observation]:
    """Run a trial and give its phases: what was counted, and the seconds it took with the threads of now."""
    resolved, graph, task = trial.resolved, trial.graph, trial.task
    assert isinstance(resolved.model, str)
    model = build_model(graph, resolved.model, resolved.options, task=task)
    model = ready(model, device=torch.device("cpu"), dtype=torch.float32)
    told: list[Event] = []
    settings = replace(resolved.settings, epochs=_EPOCHS)
    trainer = Trainer(
        graph, model, settings, kind=strategies["single"], place=Place(progress=told.append), task=task
    )
    trainer.fit()
    trainer.strategy.close()
    seconds = [event["seconds"] for event in told if event["event"] == "epoch"][1:]
    for phase, work in trial.work.items():
        taken = [each[phase] for each in seconds if phase in each]
        if taken:
            yield Observation(work, min(taken))


def _named(trial: dict[str, Any]) -> dict[str, Any]:
    data = {"name": "community", "degree": 10.0, **trial["data"]}
    return {"data": data, "model": trial["model"]}


def _filled(graph: Graph, share: float | None) -> Graph:
    """Return a graph of whose features only a share is there, as those of words in texts."""
    if share is None:
        return graph
    ((kind, held),) = graph.node_data.items()
    draws = torch.rand(held["x"].shape, generator=torch.Generator().manual_seed(0))
    dense = held["x"]
    assert isinstance(dense, torch.Tensor), "the features of communities"
    x = SparseFeatures.from_dense(torch.where(draws < share, dense, 0.0))
    return Graph(replace(graph.parts(), node_data={kind: {**held, "x": x}}))
