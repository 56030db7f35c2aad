"""From what the user says to a run: `weft.train(graph, model, ...)` in Python, `run_recipe` from TOML."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from inspect import isclass, signature
from pathlib import Path
from typing import Any, Literal

from torch import nn

import weft
from weft.code import name_of, told
from weft.comm.group import Group
from weft.config import Recipe, bind
from weft.errors import InputError
from weft.events import Sink
from weft.graph.graph import Graph
from weft.strategies.learned import RowOptimizerName
from weft.tasks.choose import TaskChoice
from weft.tasks.loss import LossFunction
from weft.tasks.metrics import Metric
from weft.train.check import check_arguments, check_keywords
from weft.train.fit import Check, check_place, run
from weft.train.model import check_options, option_names
from weft.train.optim import OptimizerName, ScheduleName
from weft.train.resolve import (
    Resolved,
    check_optimizer,
    check_precision,
    check_targets,
    resolve,
    resolve_strategy,
)
from weft.train.saved.run_folder import check_folder, read_run
from weft.train.saved.summary import Summary
from weft.train.settings import BestBy, Precision, Settings
from weft.train.trainer import Place
from weft.train.user.followed import followed, own_of
from weft.train.user.functions import Own
from weft.train.user.own_model import say_hops
from weft.train.workers.deal import check_workers, with_parts_of
from weft.train.workers.run_parts import holds_parts
from weft.train.workers.team import team_size, train_together
from weft.train.workers.worker import train_parts


def train(
    graph: Graph,
    model: nn.Module | type[nn.Module] | str,
    *,
    workers: int | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    optimizer: OptimizerName = "adam",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    rows_optimizer: RowOptimizerName | None = None,
    rows_lr: float | None = None,
    schedule: ScheduleName | None = None,
    schedule_every: int = 50,
    schedule_factor: float = 0.5,
    patience: int | None = None,
    metric: str = "auto",
    metrics: Mapping[str, str | Metric] | None = None,
    best_by: BestBy = "metric",
    loss: str | LossFunction = "auto",
    restore_best: bool = True,
    seed: int = 0,
    device: str = "auto",
    precision: Precision = "float32",
    eval_every: int = 1,
    checkpoint_every: int | None = None,
    tensorboard: bool = False,
    trace: bool = False,
    prices: str | None = None,
    placement: Literal["usual", "measured"] = "usual",
    task: str | Mapping[str, Any] | None = None,
    strategy: str | Mapping[str, Any] | None = None,
    parts: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Sink | None = None,
    stop: Callable[[], bool] | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Summary:
    """Train a model on a graph and return what came of it; the best weights are left in the model.

    `model` is any module called as `model(blocks, x)`, a class of one or its name, "my_module:Net", with
    `options` for its constructor, or the name of a layer ("gcn", "sage", "gat" …) with those of its stack
    (layers, hidden, dropout, heads …). Options may also stand as further keywords; `hops` says how many
    blocks a model of your own takes, where a strategy cannot find out. `loss` is a name, or a function
    (outputs, y) that gives one value per row or their mean; `metrics` are functions (outputs, y) to a number,
    by name. `out` is the folder of the run; `resume` continues the run in it bit for bit. `progress` is
    called with every event, `stop` is asked after every epoch whether to stop there. The other keywords are
    those of `weft.train.Settings`.

    `task` is what is learned, a name or a table with its options; by default what the graph's y is: a class,
    several labels or a number for each node.
    `strategy` is a name or a table with its options, `parts` the number of parts the graph is cut into.
    `workers` processes are started, which import the code of the model by name; under torchrun its ranks are
    the workers, every one of them returns the same summary, and only rank 0 writes.

        weft.train(graph, "gcn", hidden=16, lr=0.01, weight_decay=5e-4).test_accuracy
        weft.train(graph, Net(16, 7), workers=4, strategy="halo", loss=my_loss, metrics={"f1": my_f1})
    """
    arguments = locals()
    check_arguments(graph, model, out=out, strategy=strategy, loss=loss, metrics=metrics, options=options)
    size = team_size(workers)
    resolved = _resolved(arguments, size)
    place = Place(out=out, resume=resume, progress=progress, stop=stop)
    check_place(resolved.settings, place)
    summary = train_together(resolved, place, size) if size > 1 else _alone(resolved, place, weft.check_room)
    return replace(summary, model=own_of(summary.model))


def _resolved(arguments: Mapping[str, Any], size: int) -> Resolved:
    """Return the arguments of `train`, by name, checked; they are for `size` workers."""
    loss, metrics, task, strategy = (arguments[name] for name in ("loss", "metrics", "task", "strategy"))
    name, options = _named(arguments["model"], {**(arguments["options"] or {}), **arguments["more"]})
    settings = Settings(**bind(Settings, {**_plain(arguments), **_names(loss, metrics)}, "train"))
    chosen = TaskChoice.of({"name": task} if isinstance(task, str) else dict(task or {}))
    chosen.check_names(settings.loss, settings.metric, settings.metrics or {})
    section = {"name": strategy} if isinstance(strategy, str) else dict(strategy or {})
    kind, strategy_options = _strategy(section, arguments, size)
    check_targets(chosen, kind, strategy_options)
    check_precision(settings, strategy_options)
    check_optimizer(settings, kind)
    loss_choice = None if isinstance(loss, str) else loss
    own_metrics = {key: code for key, code in (metrics or {}).items() if not isinstance(code, str)}
    return Resolved(
        {},
        name,
        options,
        kind,
        strategy_options,
        settings,
        graph=arguments["graph"],
        loss_choice=loss_choice,
        own_metrics=own_metrics,
        own=Own.of(settings, loss=loss_choice, metrics=own_metrics),
        task=chosen,
    )


def _strategy(section: dict[str, Any], arguments: Mapping[str, Any], size: int) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the strategy; a run that is continued has its own parts."""
    parts, out = arguments["parts"], arguments["out"]
    section |= {} if parts is None else {"parts": parts}
    if arguments["resume"] and out is not None and (Path(out) / "run.json").exists():
        section = _continued(section, out, size)
    default = "halo" if size > 1 or parts is not None else "single"
    return resolve_strategy(section, default=default, workers=size)


def _named(model: Any, options: Mapping[str, Any]) -> tuple[nn.Module | str, dict[str, Any]]:
    """Return the model, or the name of its class, and its options."""
    if isclass(model):
        name = name_of(model)
        if name is None:
            raise InputError(
                f"model: {model.__qualname__} is not found in a module by that name; call it to make a model"
            )
        model = name
    if isinstance(model, nn.Module) and "hops" in options:
        say_hops(model, options["hops"])
        options = {key: value for key, value in options.items() if key != "hops"}
    check_keywords(
        options, signature(train).parameters, option_names(model) if isinstance(model, str) else None
    )
    if isinstance(model, str):
        return model, check_options(model, options)
    return followed(model), dict(options)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {item.name: arguments[item.name] for item in fields(Settings)}


def _names(loss: Any, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return loss and metrics as settings and runs tell them."""
    named = {key: code if isinstance(code, str) else told(code) for key, code in (metrics or {}).items()}
    return {"loss": loss if isinstance(loss, str) else told(loss), "metrics": named or None}


def _continued(strategy: Mapping[str, Any], out: str | Path, workers: int) -> dict[str, Any]:
    """Return the strategy of the run in a folder, on the parts it has; refuse workers that cannot go on."""
    kept = read_run(out)["recipe"]
    check_workers(kept, workers, out)
    return with_parts_of(strategy, kept, out)


def _alone(resolved: Resolved, place: Place, check: Check | None = None) -> Summary:
    """Train in this process, on the parts of a run that is continued where it has some."""
    if resolved.partition is None and not (place.resume and holds_parts(place.out)):
        return run(resolved, place, check)
    summary = train_parts(resolved, place, Group.alone())
    assert summary is not None, "one process trains"
    return summary


def run_recipe(recipe: Recipe, place: Place, check: Check | None = None) -> Summary:
    """Train as a recipe says, in this process. What can be checked without the data is checked first.

    `check` is called with what was read, before anything is made of it, and may refuse it.
    """
    resolved = resolve(recipe)
    if place.out is not None:
        check_folder(Path(place.out), resume=place.resume)  # before time is spent on the data
    return _alone(resolved, place, check)
