"""From what the user says to a run: `weft.train(graph, model, ...)` in Python, `run_recipe` from TOML."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from weft.comm.group import Group
from weft.config import Recipe, bind
from weft.events import Sink
from weft.graph.graph import Graph
from weft.strategies.base import LossName
from weft.strategies.records_graph import RecordGraph
from weft.train.check import check_arguments, check_keywords
from weft.train.fit import run
from weft.train.model import describe_model, option_names
from weft.train.optim import OptimizerName, ScheduleName
from weft.train.resolve import check_precision, resolve, resolve_strategy
from weft.train.run import check_folder
from weft.train.settings import BestBy, MetricName, Precision, Settings
from weft.train.summary import Summary
from weft.train.trainer import Place
from weft.train.worker import run_worker


def train(
    graph: Graph,
    model: nn.Module | str,
    *,
    epochs: int = 200,
    lr: float = 0.01,
    optimizer: OptimizerName = "adam",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    schedule: ScheduleName | None = None,
    schedule_every: int = 50,
    schedule_factor: float = 0.5,
    patience: int | None = None,
    metric: MetricName = "auto",
    best_by: BestBy = "metric",
    loss: LossName = "auto",
    restore_best: bool = True,
    seed: int = 0,
    device: str = "auto",
    precision: Precision = "float32",
    eval_every: int = 1,
    checkpoint_every: int | None = None,
    tensorboard: bool = False,
    trace: bool = False,
    strategy: str | Mapping[str, Any] = "single",
    parts: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Sink | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> Summary:
    """Train a model on a graph and return what came of it; the best weights are left in the model.

    `model` is any module called as `model(blocks, x)`, or the name of a layer ("gcn", "sage", "gat" …) with
    `options` for its stack (layers, hidden, dropout, heads …). `out` is the folder of the run; `resume`
    continues the run in it bit for bit. `progress` is called with every event, `stop` is asked after every
    epoch whether to stop there. The other keywords are those of `weft.train.Settings`.

    `strategy` is a name or a table with its options, `parts` the number of parts the graph is cut into; all
    of them are held by this process. Several processes are started by `weft train --workers N`.

        weft.train(graph, "gcn", hidden=16, lr=0.01, weight_decay=5e-4).test_accuracy
        weft.train(graph, "gcn", strategy={"name": "halo", "exchange": "exact"}, parts=4).test_accuracy
    """
    given = locals()
    check_arguments(graph, model, out=out, strategy=strategy)
    check_keywords(
        options, signature(train).parameters, option_names(model) if isinstance(model, str) else None
    )
    values = {item.name: given[item.name] for item in fields(Settings)}
    settings = Settings(**bind(Settings, values, "train"))
    section = {"name": strategy} if isinstance(strategy, str) else dict(strategy)
    name, strategy_options = resolve_strategy(section | ({} if parts is None else {"parts": parts}))
    check_precision(settings, strategy_options)
    recipe = {
        "data": {},
        "model": describe_model(model, options),
        "strategy": {"name": name, **strategy_options},
        "train": asdict(settings),
    }
    place = Place(out=out, resume=resume, progress=progress, stop=stop)
    return run(graph, model, options, settings=settings, recipe=recipe, place=place)


def run_recipe(recipe: Recipe, place: Place) -> Summary:
    """Train as a recipe says, in this process. What can be checked without the data is checked first."""
    resolved = resolve(recipe)
    if place.out is not None:
        check_folder(Path(place.out), resume=place.resume)  # before time is spent on the data
    if resolved.partition is not None:
        summary = run_worker(recipe, place, Group.alone())
        assert summary is not None, "one process trains"
        return summary
    records = resolved.records
    return run(
        resolved.open() if records is None else RecordGraph(records),
        resolved.model,
        resolved.options,
        settings=resolved.settings,
        recipe=resolved.to_dict(),
        place=place,
    )
