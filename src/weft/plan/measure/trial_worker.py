"""One process of trial runs: it trains as those of a run do, alone or among others."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from weft import process
from weft.comm.group import Group
from weft.config import Recipe
from weft.events import Event
from weft.graph.graph import Graph
from weft.layers.base import GraphInfo
from weft.plan.measure.trials import opened
from weft.strategies.base import strategies
from weft.strategies.local import LocalGraph
from weft.tasks.base import Task, put_head
from weft.train.model import build_model, ready
from weft.train.resolve import Resolved, resolve
from weft.train.trainer import Place, Trainer
from weft.train.workers.run_parts import read_parts


def main(folder: Path) -> None:
    """Run the trials that a folder names, and leave the events of each there."""
    process.return_freed()
    with Group.connect() as group:
        for number, trial in enumerate(json.loads((folder / "trials.json").read_text(encoding="utf-8"))):
            told = trained(trial, group)
            path = folder / f"events-{number}-{group.rank}.json"
            path.write_text(json.dumps(told), encoding="utf-8")


def trained(trial: dict[str, Any], group: Group) -> list[Event]:
    """Return the events of a trial's epochs, and of what this process sent in them."""
    resolved = resolve(Recipe(**trial["recipe"]), workers=group.size)
    graph, task = _held(trial, resolved, group)
    assert isinstance(resolved.model, str), "trials name a layer"
    model = build_model(cast(Any, graph), resolved.model, resolved.options, task=task)
    put_head(task, model, GraphInfo.of(graph), seed=resolved.settings.seed)
    told: list[Event] = []
    kind = cast(Any, strategies[resolved.strategy])
    trainer = Trainer(
        graph,
        ready(model, device=torch.device("cpu"), dtype=torch.float32),
        resolved.settings,
        kind=partial(kind, group=group, **resolved.strategy_options),
        place=Place(progress=told.append),
        task=task,
    )
    trainer.fit()
    trainer.strategy.close()
    return [each for each in told if each["event"] in ("epoch", "traffic")]


def _held(trial: dict[str, Any], resolved: Resolved, group: Group) -> tuple[Graph | LocalGraph, Task]:
    """Return what this process has of the graph, and the task on it."""
    if group.size == 1:
        return opened(resolved, trial.get("filled"))
    parts, own = Path(trial["parts"]), {"rank": group.rank, "workers": group.size}
    graph, _ = read_parts(parts, **own, dtype=torch.float32, part_rank=None)
    task = resolved.make_task(graph)
    task.read(parts)
    return graph, task


if __name__ == "__main__":
    main(Path(sys.argv[1]))
