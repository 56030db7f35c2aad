"""A recipe with every name looked up and every option checked, before any data is read."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from weft.code import is_code
from weft.config import Recipe, bind, parameters
from weft.datasets import open_dataset
from weft.datasets.records import graph_of, is_records
from weft.errors import RecipeError, WeftWarning
from weft.exchanges.base import check_exchange, exchanges
from weft.graph.graph import Graph
from weft.layers.no_layers import NO_LAYERS
from weft.meaning import meaning_of
from weft.strategies.base import Strategy, strategies
from weft.strategies.records.record_loader import RecordFiles
from weft.tasks.base import Task
from weft.tasks.choose import TaskChoice
from weft.train.model import check_options, describe_model
from weft.train.settings import Settings, choose_device
from weft.train.user.functions import Own
from weft.train.workers.run_parts import check_partition, partition_of

# What is trained when nothing is said.
DEFAULT_DATA = {"name": "community"}
DEFAULT_MODEL = "sage"
ALONE, SEVERAL = "single", "halo"
"""The strategies of one process, and of several workers or parts."""


@dataclass(frozen=True)
class Resolved:
    """A recipe with every name looked up and every option checked, before any data is read."""

    data: dict[str, Any]
    model: nn.Module | str
    options: dict[str, Any]
    strategy: str
    strategy_options: dict[str, Any]
    settings: Settings
    partition: Path | None = None
    """The folder of parts that the data is, where it was cut already."""
    graph: Graph | None = None
    """The graph itself, where it is given in Python."""
    loss_choice: Any = None
    own_metrics: Mapping[str, Any] | None = None
    """Functions that are given in Python; others are named by the settings."""
    own: Own | None = None
    """Loss and metrics of the user's own; None: those that the settings name."""
    task: TaskChoice = field(default_factory=TaskChoice)

    def make_task(self, graph: Any) -> Task:
        """Return the task, of the graph or of what a worker holds of it."""
        own = Own.of(self.settings) if self.own is None else self.own
        task = self.task.make(graph, loss=own.loss or self.settings.loss)
        task.hides(strategies[self.strategy].hides_batches)
        return task

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as a run keeps it."""
        path = {"path": str(Path(self.data["path"]).resolve())} if "path" in self.data else {}
        return {
            "data": {**self.data, **path},
            "task": self.task.to_dict(),
            "model": describe_model(self.model, self.options),
            "strategy": {"name": self.strategy, **self.strategy_options},
            "train": asdict(self.settings),
            "graph": self._meaning(),
        }

    def _meaning(self) -> dict[str, Any]:
        records = self.records
        return meaning_of(_graph_folder(self.data)) if records is None else dict(records.manifest["meaning"])

    @property
    def records(self) -> RecordFiles | None:
        """The records that are trained from without their graph; None where there is a graph to read."""
        alone = strategies[self.strategy].records_alone(self.strategy_options)
        return None if alone is None else RecordFiles.open(alone)

    def open(self) -> Graph:
        """Return the graph: the one that is given, or the one that is read."""
        if self.graph is not None:
            return self.graph
        return open_dataset(**_data_arguments(self.data))


def resolve(recipe: Recipe, *, workers: int = 1) -> Resolved:
    """Return a recipe checked as far as it can be without its data."""
    settings = Settings(**bind(Settings, recipe.train, "train"))
    task = TaskChoice.of(recipe.task or _flattened(recipe))
    task.check_names(settings.loss, settings.metric, settings.metrics or {})
    data, section = _from_records(_data_of(recipe), recipe.strategy)
    name, options = _split_model(recipe.model, section)
    options = check_options(name, options)
    _data_arguments(data)
    folder = partition_of(data)
    several = workers > 1 or "parts" in section or folder is not None
    strategy, strategy_options = resolve_strategy(
        section, default=SEVERAL if several else ALONE, workers=workers
    )
    if folder is not None:
        cuts = strategies[strategy].cuts
        check_partition(folder, data=data, model=name, options=strategy_options, cuts=cuts)
        if not strategies[strategy].on_workers:
            raise RecipeError(
                f"strategy.name: {strategy!r} needs the whole graph, {folder} holds it in parts; use "
                f"{SEVERAL!r}"
            )
    check_targets(task, strategy, strategy_options)
    check_precision(settings, strategy_options)
    check_optimizer(settings, strategy)
    choose_device(settings.device)
    settings.known_prices()
    Own.of(settings)  # what they name is there
    return Resolved(data, name, options, strategy, strategy_options, settings, folder, task=task)


def check_targets(task: TaskChoice, strategy: str, options: Mapping[str, Any]) -> None:
    """Refuse a task whose targets a strategy, or an option of it, cannot train on."""
    for kind in task.kinds:
        if kind.over not in strategies[strategy].over:
            able = ", ".join(name for name in strategies.names() if kind.over in strategies[name].over)
            raise RecipeError(
                f"strategy.name: {strategy!r} does not train on {kind.over}, which {kind.name!r} is about; "
                f"use one of {able}"
            )
        hides = kind.hides_batches(task.options)
        if hides is not None:
            strategies[strategy].check_pairs(options, hides)


def check_precision(settings: Settings, strategy: Mapping[str, Any]) -> None:
    """Refuse float16 where gradients of several steps meet: each step may have a scale of its own."""
    if settings.precision != "float16":
        return
    exchange, _ = check_exchange(strategy.get("exchange") or "exact")
    late = [("exchange", exchange)] if exchanges[exchange].carries_over else []
    late += [("staleness", strategy["staleness"])] if strategy.get("staleness") is not None else []
    for key, value in late:
        raise RecipeError(
            f"train.precision: float16 scales the gradients of each step, and strategy.{key} = {value!r} "
            "uses those of earlier steps; use bfloat16 or float32"
        )


def check_optimizer(settings: Settings, strategy: str) -> None:
    """Refuse an optimiser that a strategy, whose updates are of its own, does not know."""
    able = strategies[strategy].optimizers
    if able and settings.optimizer not in able:
        raise RecipeError(
            f"train.optimizer: {strategy!r} trains rows and relations by {able[0]!r}, got "
            f"{settings.optimizer!r}; use {able[0]!r}"
        )
    if able and settings.weight_decay:
        raise RecipeError("train.weight_decay: rows that are not read do not change; use task.regularise")


def _data_of(recipe: Recipe) -> dict[str, Any]:
    """Return the section of data; options alone are those of the built-in graph."""
    named = "name" in recipe.data or "path" in recipe.data
    return {**({} if named else DEFAULT_DATA), **recipe.data}


def _graph_folder(data: Mapping[str, Any]) -> Path | None:
    """Return the folder that the data is of, which records name; None where it has none."""
    path = Path(data["path"]) if "path" in data else None
    return graph_of(path) if path is not None and is_records(path) else path


def _flattened(recipe: Recipe) -> dict[str, Any]:
    """Return the task that records of pairs were made for, where a recipe trains from them."""
    for path in (recipe.data.get("path"), recipe.strategy.get("records")):
        if isinstance(path, str) and is_records(Path(path)):
            return dict(RecordFiles.open(path).manifest.get("task", {}))
    return {}


def _from_records(
    data: dict[str, Any], section: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return data and strategy; a folder of records is trained from, on the graph as it was flattened."""
    if not (isinstance(data.get("path"), str) and is_records(Path(data["path"]))):
        return data, section
    section = {"name": "records", **section}
    if section["name"] in strategies.names() and "records" in parameters(strategies[section["name"]]):
        section = {"records": str(Path(data["path"]).resolve()), **section}
    return {"symmetrise": False, "inverse_relations": False, **data}, section


def resolve_strategy(
    section: Mapping[str, Any], *, default: str = ALONE, workers: int = 1
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options, checked, of a strategy."""
    name, options = _split_name(section, default, "strategy")
    kind = strategies[name]
    provided = (*signature(Strategy).parameters, "part_rank", "speed", "whole")
    several = set(parameters(strategies[SEVERAL], given=provided)) - set(parameters(kind, given=provided))
    for key in options if "name" not in section and not kind.on_workers else ():
        if key in several:
            raise RecipeError(
                f"strategy.{key}: one process has nothing to set here; add --workers N, or name the "
                "strategy: strategy.name"
            )
    _check_keys(name, options, provided)
    options = bind(kind, options, "strategy", given=provided)
    if kind.on_workers:
        kind.check(options)
        if workers == 1 and options.get("exchange") is not None:
            _tell_nothing_travels(options["exchange"])
    elif workers > 1:
        raise RecipeError(
            f"strategy.name: {name!r} trains in one process; use {SEVERAL!r} with --workers {workers}"
        )
    return name, options


def _check_keys(name: str, options: Mapping[str, Any], provided: Iterable[str]) -> None:
    """Refuse an option that other strategies have and this one has not."""
    known = parameters(strategies[name], given=provided)
    for key in (each for each in options if each not in known):
        able = [each for each in strategies.names() if key in parameters(strategies[each], given=provided)]
        if able:
            others = ", ".join(map(repr, able))
            raise RecipeError(f"unknown key strategy.{key}; {name!r} has none, it is for {others}")


def _tell_nothing_travels(exchange: str | Mapping[str, Any]) -> None:
    """Warn that an exchange which approximates changes nothing where one process holds every part."""
    name, options = check_exchange(exchange)
    if not exchanges[name].is_exact(options):
        warnings.warn(
            f"strategy.exchange: {name!r} has nothing to carry in one process, which trains exactly; add "
            "--workers N to see its effect",
            WeftWarning,
            stacklevel=4,
        )


def _split_model(section: Mapping[str, Any], strategy: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a layer, or of a class of the user's own, and the options."""
    named = strategy.get("name")
    if isinstance(named, str) and named in strategies and not strategies[named].has_layers:
        if section and section != {"class": NO_LAYERS}:
            raise RecipeError(
                f"model.{next(iter(section))}: strategy {named!r} learns a row for each node and has no "
                "layers; leave [model] out"
            )
        return NO_LAYERS, {}
    if "class" not in section:
        return _split_name(section, DEFAULT_MODEL, "model")
    options = dict(section)
    name = options.pop("class")
    if not is_code(name):
        raise RecipeError(f"model.class: expected 'module:name', as 'my_package.my_module:Net', got {name!r}")
    if "name" in options:
        raise RecipeError(f"model.name: {name} is the model already; name a layer or a class, not both")
    return name, options


def _split_name(section: Mapping[str, Any], default: str, where: str) -> tuple[str, dict[str, Any]]:
    options = dict(section)
    name = options.pop("name", default)
    if not isinstance(name, str):
        raise RecipeError(f"{where}.name: expected a string, got {name!r}")
    return name, options


def _data_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("path", "name"):
        if key in data and not isinstance(data[key], str):
            raise RecipeError(f"data.{key}: expected a string, got {data[key]!r}")
    return dict(data)
