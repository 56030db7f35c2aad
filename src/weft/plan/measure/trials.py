"""Trial runs: small trainings of a few models, timed by phase beside their counted work."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from weft.config import Recipe
from weft.events import Event
from weft.graph.graph import Graph
from weft.plan.measure.fit import Observation
from weft.plan.rehearse.rehearsal import rehearse
from weft.plan.rehearse.work import CountedWork
from weft.strategies.base import strategies
from weft.tasks.base import Task
from weft.train.model import adapt, build_model, ready
from weft.train.resolve import Resolved, resolve
from weft.train.trainer import Place, Trainer

_EPOCHS = 12  # the least counts: what else the machine does is not its rate
TRIALS: tuple[dict[str, Any], ...] = (
    {"data": {"nodes": 500, "features": 16}, "model": {"name": "gcn", "hidden": 16}},
    {"data": {"nodes": 4000, "features": 64}, "model": {"name": "gcn", "hidden": 64}},
    {"data": {"nodes": 4000, "features": 128}, "model": {"name": "sage", "hidden": 32, "layers": 3}},
    {"data": {"nodes": 2000, "features": 32}, "model": {"name": "gat", "hidden": 8, "heads": 4}},
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
        whole = resolved.open()
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
    return {**trial, "data": {"name": "community", "degree": 10.0, **trial["data"]}}
