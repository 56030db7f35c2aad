"""From what the user says to a run: `weft.train(graph, model, ...)` in Python, `run_recipe` from TOML."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from weft.comm.group import Group
from weft.config import Recipe, bind, parameters
from weft.datasets import open_dataset
from weft.datasets.records import graph_of, is_records
from weft.errors import InputError, RecipeError, TrainingError, WeftWarning
from weft.events import Sink
from weft.exchanges.base import check_exchange, exchanges
from weft.graph.graph import Graph
from weft.meaning import meaning_of
from weft.registry import require
from weft.stores.open import with_file
from weft.strategies.base import LossName, Strategy, strategies, takes
from weft.strategies.distributed import Distributed
from weft.strategies.local import LocalGraph
from weft.strategies.steps import Steps
from weft.train.check import check_arguments, check_keywords
from weft.train.model import adapt, build_model, check_options, describe_model, option_names, ready
from weft.train.needs import check_memory, out_of_memory
from weft.train.optim import OptimizerName, ScheduleName
from weft.train.parts import check_partition, partition_of, whole_in_parts
from weft.train.run import RunFolder, check_folder
from weft.train.settings import BestBy, MetricName, Precision, Settings, choose_device
from weft.train.summary import Summary
from weft.train.trainer import Place, Trainer

# What is trained when nothing is said.
DEFAULT_DATA = {"name": "community"}
DEFAULT_MODEL = "sage"
ON_GPU = ("single", "sampled", "clustered", "saint", "halo", "sequential")
"""The strategies that train on a GPU, in one process."""


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
    name, strategy_options = _resolve_strategy(section | ({} if parts is None else {"parts": parts}))
    recipe = {
        "data": {},
        "model": describe_model(model, options),
        "strategy": {"name": name, **strategy_options},
        "train": asdict(settings),
    }
    place = Place(out=out, resume=resume, progress=progress, stop=stop)
    return run(graph, model, options, settings=settings, recipe=recipe, place=place)


def run(
    graph: Graph,
    model: nn.Module | str,
    options: Mapping[str, Any],
    *,
    settings: Settings,
    recipe: Mapping[str, Any],
    place: Place,
) -> Summary:
    """Train as `train` does, with settings already checked and a recipe to keep with the run."""
    strategy = {**recipe["strategy"]}
    kind = strategies[strategy.pop("name")]
    _check_place(settings, place)
    device = device_for(kind, settings.device)
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    graph = with_file(adapt(graph, model), strategy.get("store"), dtype).to(dtype=dtype)
    if not issubclass(kind, Steps | Distributed) and strategy.get("activation") != "offload":
        check_memory(graph, model, options, device)
        graph = graph.to(device=device)  # the others keep it on the host and bring what is needed
    counts = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "num_classes": graph.num_classes}
    recipe = {**recipe, "graph": {**recipe.get("graph", {}), **counts}}
    folder = RunFolder(place.out, recipe=recipe, resume=place.resume) if place.out is not None else None
    given = {"device": device} if takes(kind, "device") else {}
    made = partial(cast(Any, kind), **strategy, **given)
    held: Graph | LocalGraph = graph
    if issubclass(kind, Distributed) and not (kind.takes_whole and strategy.get("parts") is None):
        held = whole_in_parts(graph, kind, strategy)
        if device.type == "cuda" and not issubclass(kind, Steps):
            held = LocalGraph(held.shard, facts=held.facts, device=device)
    return fit(held, model, options, settings=settings, kind=made, folder=folder, place=place, device=device)


def device_for(kind: type[Strategy], name: str) -> torch.device:
    """Return the device that a strategy in one process trains on, or refuse one that it cannot use."""
    able = kind.name in ON_GPU
    device = choose_device("cpu" if name == "auto" and not able else name)
    if device.type != "cpu" and not able:
        raise RecipeError(
            f"train.device: {name!r} with strategy {kind.name!r} is not supported; use 'cpu', or one of "
            f"{', '.join(ON_GPU)}"
        )
    return device


def fit(
    graph: Graph | LocalGraph,
    model: nn.Module | str,
    options: Mapping[str, Any],
    *,
    settings: Settings,
    kind: Callable[..., Strategy],
    folder: RunFolder | None,
    place: Place,
    device: torch.device | None = None,
) -> Summary:
    """Build the model where only its name is given, and train it; the graph is ready and the folder open.

    `device` is where the model is to be; None: where the graph lies.
    """
    device = graph.indptr.device if device is None else device
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    if isinstance(model, str):
        model = build_model(graph, model, options, seed=settings.seed)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        trainer = Trainer(
            graph, ready(model, device=device, dtype=dtype), settings, kind=kind, folder=folder, place=place
        )
        try:
            return trainer.run()
        except torch.OutOfMemoryError:
            raise TrainingError(out_of_memory(trainer.graph, trainer.model, device)) from None


def _check_place(settings: Settings, place: Place) -> None:
    for asked, what in (
        (place.resume, "resume"),
        (settings.tensorboard, "tensorboard"),
        (settings.trace, "trace"),
    ):
        if asked and place.out is None:
            raise InputError(f"{what} needs the folder of the run: out=")
    if settings.tensorboard:
        require("tensorboard", "tensorboard")


@dataclass(frozen=True)
class Resolved:
    """A recipe with every name looked up and every option checked, before any data is read."""

    data: dict[str, Any]
    model: str
    options: dict[str, Any]
    strategy: str
    strategy_options: dict[str, Any]
    settings: Settings
    partition: Path | None = None
    """The folder of parts that the data is, where it was cut already."""

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as a run keeps it."""
        path = {"path": str(Path(self.data["path"]).resolve())} if "path" in self.data else {}
        return {
            "data": {**self.data, **path},
            "model": describe_model(self.model, self.options),
            "strategy": {"name": self.strategy, **self.strategy_options},
            "train": asdict(self.settings),
            "graph": meaning_of(_graph_folder(self.data)),
        }

    def open(self) -> Graph:
        """Read the graph."""
        return open_dataset(**_data_arguments(self.data))


def resolve(recipe: Recipe, *, workers: int = 1) -> Resolved:
    """Return a recipe checked as far as it can be without its data."""
    settings = Settings(**bind(Settings, recipe.train, "train"))
    name, options = _split_name(recipe.model, DEFAULT_MODEL, "model")
    options = check_options(name, options)
    data, section = _from_records(_data_of(recipe), recipe.strategy)
    _data_arguments(data)
    folder = partition_of(data)
    several = workers > 1 or "parts" in section or folder is not None
    strategy, strategy_options = _resolve_strategy(
        section, default="halo" if several else "single", workers=workers
    )
    if folder is not None:
        cuts = getattr(strategies[strategy], "cuts", "nodes")
        check_partition(folder, data=data, model=name, options=strategy_options, cuts=cuts)
        if not issubclass(strategies[strategy], Distributed):
            raise RecipeError(
                f"strategy.name: {strategy!r} needs the whole graph, {folder} holds it in parts; use 'halo'"
            )
    choose_device(settings.device)
    return Resolved(data, name, options, strategy, strategy_options, settings, folder)


def _data_of(recipe: Recipe) -> dict[str, Any]:
    """Return the section of data; options alone are those of the built-in graph."""
    named = "name" in recipe.data or "path" in recipe.data
    return {**({} if named else DEFAULT_DATA), **recipe.data}


def _graph_folder(data: Mapping[str, Any]) -> Path | None:
    """Return the folder that the data is of, which records name; None where it has none."""
    path = Path(data["path"]) if "path" in data else None
    return graph_of(path) if path is not None and is_records(path) else path


def _from_records(
    data: dict[str, Any], section: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return data and strategy; a folder of records is trained from, on the graph as it was flattened."""
    if not (isinstance(data.get("path"), str) and is_records(Path(data["path"]))):
        return data, section
    section = {"name": "records", **section}
    if section["name"] == "records":
        section = {"records": str(Path(data["path"]).resolve()), **section}
    return {"symmetrise": False, "inverse_relations": False, **data}, section


def _resolve_strategy(
    section: Mapping[str, Any], *, default: str = "single", workers: int = 1
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options, checked, of a strategy."""
    name, options = _split_name(section, default, "strategy")
    kind = strategies[name]
    given = (*signature(Strategy).parameters, "group", "part_rank", "speed", "device")
    several = parameters(strategies["halo"], given=given)
    for key in options if "name" not in section and not issubclass(kind, Distributed) else ():
        if key in several:
            raise RecipeError(
                f"strategy.{key}: one process has nothing to set here; add --workers N, or name the "
                "strategy: strategy.name"
            )
    options = bind(kind, options, "strategy", given=given)
    if issubclass(kind, Distributed):
        kind.check(options)
        if workers == 1 and options.get("exchange") is not None:
            _tell_nothing_travels(options["exchange"])
    elif workers > 1:
        raise RecipeError(
            f"strategy.name: {name!r} trains in one process; use 'halo' with --workers {workers}"
        )
    return name, options


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


def run_recipe(recipe: Recipe, place: Place) -> Summary:
    """Train as a recipe says, in this process. What can be checked without the data is checked first."""
    resolved = resolve(recipe)
    if place.out is not None:
        check_folder(Path(place.out), resume=place.resume)  # before time is spent on the data
    if resolved.partition is not None:
        from weft.train.worker import run_worker  # which builds on this module

        summary = run_worker(recipe, place, Group.alone())
        assert summary is not None, "one process trains"
        return summary
    return run(
        resolved.open(),
        resolved.model,
        resolved.options,
        settings=resolved.settings,
        recipe=resolved.to_dict(),
        place=place,
    )


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
