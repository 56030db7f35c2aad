"""A graph and a model that are ready, trained in this process."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from weft import process
from weft.errors import InputError, RecipeError, TrainingError
from weft.graph.graph import Graph
from weft.graph.views import GraphView, recorded_counts
from weft.layers.base import GraphInfo
from weft.registry import require
from weft.stores.open import by_rows, with_file
from weft.strategies.base import Strategy, strategies
from weft.strategies.local import LocalGraph
from weft.strategies.records.record_graph import RecordGraph
from weft.tasks.base import Task, put_head
from weft.train.model import adapt, build_model, checked_loops, ready
from weft.train.needs import check_memory, out_of_memory, place_rows
from weft.train.saved.claim import claimed
from weft.train.saved.run_folder import RunFolder
from weft.train.saved.summary import Summary
from weft.train.settings import Settings, choose_device
from weft.train.trainer import Place, Trainer
from weft.train.user.functions import Own
from weft.train.workers.run_parts import whole_in_parts

if TYPE_CHECKING:
    from weft.train.resolve import Resolved

Check = Callable[["Resolved", GraphView], None]


def run(resolved: "Resolved", place: Place, check: Check | None = None) -> Summary:
    """Train in this process as a recipe says that is checked; `check` may refuse what was read."""
    process.adapt()
    model, options, settings = resolved.model, resolved.options, resolved.settings
    recipe, strategy = resolved.to_dict(), resolved.strategy_options
    kind = strategies[resolved.strategy]
    check_place(settings, place)
    device = device_for(kind, settings.device)
    graph, task = _read(resolved, kind, device)
    if check is not None:
        check(resolved, graph)
    recipe = {**recipe, "graph": {**recipe.get("graph", {}), **recorded_counts(graph)}}
    made = partial(cast(Any, kind), **strategy, device=device)
    with claimed(place.out):
        folder = RunFolder(place.out, recipe=recipe, resume=place.resume) if place.out is not None else None
        return fit(
            graph,
            model,
            options,
            settings=settings,
            kind=made,
            folder=folder,
            place=place,
            device=device,
            task=task,
            own=resolved.own,
        )


def _read(resolved: "Resolved", kind: type[Strategy], device: torch.device) -> tuple[GraphView, Task]:
    """Return what is trained on, records alone or the graph as its strategy takes it, and the task."""
    model, options, strategy = resolved.model, resolved.options, resolved.strategy_options
    dtype = torch.float64 if resolved.settings.precision == "float64" else torch.float32
    records = resolved.records if resolved.graph is None else None
    if records is not None:
        records_graph = RecordGraph(records)
        return checked_loops(records_graph, model, options).to(dtype=dtype), resolved.make_task(records_graph)
    graph = resolved.open()
    task = resolved.make_task(graph)
    store = strategy.get("store")
    read = with_file(adapt(task.prepared(graph), model, options, task), store, dtype)
    one_kind = len(read.node_types) == 1 or task.over == "nodes"  # else exact rows of all kinds are needed
    if "store" in signature(kind).parameters and one_kind and device.type == "cpu":
        read = by_rows(read, store, dtype, opened=resolved.graph is None)

    def check(whole: Graph) -> None:
        if strategy.get("activation", "keep") == "keep":  # else it is bounded, by a plan of its own
            check_memory(whole, model, options, device, task)

    return _placed(kind, strategy, read.to(dtype=dtype), device, check), task


def _placed(
    kind: type[Strategy],
    options: Mapping[str, Any],
    graph: Graph,
    device: torch.device,
    check: Callable[[Graph], None],
) -> Graph | LocalGraph:
    """Return the graph as a strategy takes it, whole or in parts, where it is to lie; `check` what fits."""
    near = kind.graph_on_device(options)
    if not kind.on_workers or (kind.takes_whole and options.get("parts") is None):
        if not near:
            return graph
        check(graph)
        return graph.to(device=device)
    parts = whole_in_parts(graph, kind, options)
    on_gpu = near and device.type == "cuda"
    return LocalGraph(parts.shard, facts=parts.facts, device=device) if on_gpu else parts


def device_for(kind: type[Strategy], name: str) -> torch.device:
    """Return the device that a strategy in one process trains on, or refuse one that it cannot use."""
    device = choose_device("cpu" if name == "auto" and "cuda" not in kind.devices else name)
    if device.type not in kind.devices:
        able = [each for each in strategies.names() if device.type in strategies[each].devices]
        raise RecipeError(
            f"train.device: {name!r} with strategy {kind.name!r} is not supported; use 'cpu', or one of "
            f"{', '.join(able)}"
        )
    return device


def fit(
    graph: GraphView,
    model: nn.Module | str,
    options: Mapping[str, Any],
    *,
    settings: Settings,
    kind: Callable[..., Strategy],
    folder: RunFolder | None,
    place: Place,
    device: torch.device | None = None,
    task: Task,
    own: Own | None = None,
) -> Summary:
    """Build the model where only its name is given, and train it; the graph is ready and the folder open.

    `device` is where the model is to be; None: where the graph lies. `own` are loss and metrics of the user's
    own; None: those that the settings name.
    """
    device = graph.indptr.device if device is None else device
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    if isinstance(model, str):
        model = build_model(graph, model, options, task=task, seed=settings.seed)
    put_head(task, model, GraphInfo.of(graph), seed=settings.seed)
    if getattr(getattr(kind, "func", kind), "rows_by_owner", False):
        place_rows(model, device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        trainer = Trainer(
            graph,
            ready(model, device=device, dtype=dtype),
            settings,
            kind=kind,
            folder=folder,
            place=place,
            task=task,
            own=own,
        )
        try:
            return trainer.run()
        except torch.OutOfMemoryError:
            raise TrainingError(out_of_memory(trainer.graph, trainer.model, device)) from None


def check_place(settings: Settings, place: Place) -> None:
    """Refuse settings that need the folder of a run where there is none."""
    for asked, what in (
        (place.resume, "resume"),
        (settings.tensorboard, "tensorboard"),
        (settings.trace, "trace"),
    ):
        if asked and place.out is None:
            raise InputError(f"{what} needs the folder of the run: out=")
    if settings.tensorboard:
        require("tensorboard", "tensorboard")
