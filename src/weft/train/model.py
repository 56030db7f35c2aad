"""From a name, of a layer or of a class of the user's own, and options to a model that fits a graph."""

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

from weft.code import is_code, told
from weft.config import bind, parameters
from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo, layers, number_draws
from weft.layers.seeded import seeded
from weft.layers.stack import Stack
from weft.strategies.records.record_graph import RecordGraph
from weft.tasks.base import Task, columns_of, put_head
from weft.tasks.choose import usual_task
from weft.train.user.followed import Followed, followed, own_of
from weft.train.user.own_model import build_own, check_own, load_class
from weft.train.user.portable import known_arguments

# What the graph decides, or `name` does, and no option may set.
_GIVEN = ("in_features", "out_features", "info", "layer", "options")


def check_options(name: str, options: Mapping[str, Any], *, where: str = "model") -> dict[str, Any]:
    """Return the options of a stack of such layers, or of a class, converted; raise naming a wrong one."""
    if is_code(name):
        return check_own(name, options, where=where)
    kind = layers[name]
    return bind([Stack, kind.stacked, kind], options, where, given=_GIVEN)


def option_names(name: str) -> list[str]:
    """Return the options of a stack of such layers, or of a class."""
    if is_code(name):
        return [*parameters(load_class(name)), "hops"]
    kind = layers[name]
    return parameters([Stack, kind.stacked, kind], given=_GIVEN)


def describe_model(model: nn.Module | str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's record says of a model: its settings, those nobody gave included."""
    if isinstance(model, str) and is_code(model):
        return {"class": model, **options}
    if isinstance(model, str):
        defaults = {
            name: item.default
            for name, item in signature(Stack).parameters.items()
            if name not in _GIVEN and item.default is not Parameter.empty
        }
        return {"name": model, **defaults, **options}
    model = own_of(model)
    if isinstance(model, Stack):
        return {"class": "Stack", **model.settings}
    return {"class": told(type(model)), **known_arguments(model)}


def build_model(
    graph: GraphView,
    name: str,
    options: Mapping[str, Any],
    *,
    task: Task | None = None,
    seed: int = 0,
    trained: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a model for a graph and a task, with weights that depend on the seed alone.

    `trained` are the counts of the graph that the model was trained on, where this one may show others.
    """
    options = check_options(name, options)
    info = GraphInfo.of(graph)
    info = info if trained is None else info.as_recorded(trained)
    task = usual_task(graph) if task is None else task
    info = info.giving(columns_of(task, info))
    with seeded(seed):
        model = make_model(name, options, info)
    return put_head(task, model, info, seed=seed)


def make_model(name: str, options: Mapping[str, Any], info: GraphInfo) -> nn.Module:
    """Return a new model of a name for what is known of a graph."""
    if is_code(name):
        return followed(build_own(name, options, info))
    widths = info.in_features
    in_features = widths if len(widths) > 1 else next(iter(widths.values()))
    return Stack(in_features, info.out_features, layer=name, info=info, **options)


def wants_self_loops(model: nn.Module | str) -> bool:
    """Return whether the layers of a model, or the layer of that name, expect self loops in the graph.

    Of a class of the user's own only a model that is built tells.
    """
    if isinstance(model, str):
        return bool(layers[model].self_loops)
    return any(bool(getattr(module, "self_loops", False)) for module in own_of(model).modules())


def adapt(
    graph: Graph, model: nn.Module | str, options: Mapping[str, Any] | None = None, task: Task | None = None
) -> Graph:
    """Return the graph as the model expects it: with self loops where its layers are defined with them."""
    if isinstance(model, str) and is_code(model):
        model = build_model(graph, model, options or {}, task=task)
    if isinstance(model, Followed):
        model.check(graph)
    return graph.add_self_loops() if wants_self_loops(model) else graph


def checked_loops(graph: RecordGraph, model: nn.Module | str, options: Mapping[str, Any]) -> RecordGraph:
    """Return the records, or refuse those of a graph without the self loops that the model's layers need."""
    model = build_model(graph, model, options) if is_code(model) else model
    if wants_self_loops(model) and not graph.self_loops:
        raise GraphError(
            f"{graph.files.folder}: the model needs a self loop at every node, and the records are of a "
            "graph without; flatten the graph that graph.add_self_loops().save(...) wrote"
        )
    return graph


def ready(model: nn.Module, *, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return the model on its device, in its type, with every drawing module numbered."""
    number_draws(model)
    return model.to(device=device, dtype=dtype)
