"""What `weft.train` is called with, checked before anything is done: one line instead of a traceback."""

import inspect
import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.registry import suggest


def check_arguments(
    graph: Any,
    model: Any,
    *,
    out: Any,
    strategy: Any,
    loss: Any = "auto",
    metrics: Any = None,
    options: Any = None,
) -> None:
    """Refuse a graph, a model, a folder, a strategy, a loss or metrics that are something else."""
    if not isinstance(graph, Graph):
        opened = (
            f"weft.datasets.open_dataset({str(graph)!r})" if _is_path(graph) else "weft.Graph.from_pyg(data)"
        )
        raise InputError(f"graph: expected a weft.Graph, got {_describe(graph)}; make one, as with {opened}")
    if inspect.isclass(model) and not issubclass(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got the class {model.__name__}")
    if isinstance(model, nn.Module) or inspect.isclass(model):
        _check_call(model)
    elif not isinstance(model, str):
        raise InputError(
            f"model: expected a torch.nn.Module or the name of a layer, as 'gcn', got {_describe(model)}"
        )
    if not (options is None or isinstance(options, Mapping)):
        raise InputError(f"options: expected those of the model by name, got {_describe(options)}")
    if not (out is None or _is_path(out)):
        raise InputError(f"out: expected the path of a folder, got {_describe(out)}")
    if not (strategy is None or isinstance(strategy, str | Mapping)):
        raise InputError(
            f"strategy: expected a name, as 'single', or a table with one, got {_describe(strategy)}"
        )
    if not (isinstance(loss, str) or callable(loss)):
        raise InputError(f"loss: expected a name or a function loss(outputs, y), got {_describe(loss)}")
    if not (metrics is None or isinstance(metrics, Mapping)):
        raise InputError(
            f"metrics: expected names and functions, as {{'f1': my_f1}}, got {_describe(metrics)}"
        )
    for name, metric in (metrics or {}).items():
        if not (isinstance(name, str) and (isinstance(metric, str) or callable(metric))):
            raise InputError(f"metrics: {name!r} is no function metric(outputs, y), but {_describe(metric)}")


def check_keywords(options: Mapping[str, Any], own: Iterable[str], model: Iterable[str] | None) -> None:
    """Refuse a keyword that neither training nor the model, None for one that is built, has."""
    for key in options:
        if model is None:
            hint = suggest(key, own)
            raise InputError(f"unknown keyword {key!r}; {hint}a model that is already built takes no options")
        if key not in model:
            known = ", ".join(sorted(model))
            hint = suggest(key, [*own, *model])
            raise InputError(f"unknown keyword {key!r}; {hint}options of the model: {known}")


def _check_call(model: Any) -> None:
    """Refuse a model, or the class of one, that cannot be called as `model(blocks, x)`."""
    made = isinstance(model, nn.Module)
    kind = (type(model) if made else model).__name__
    if made and type(model).forward is nn.Module.forward and "forward" not in vars(model):
        raise InputError(f"model: {kind} has no forward(blocks, x)")
    call = inspect.signature(model.forward)
    if "edge_index" in call.parameters:  # as PyG's models are, which are followed
        return
    try:
        call.bind(*[None] * (2 if made else 3))  # that of a class takes the model, too
    except TypeError:
        names = ", ".join(name for name in call.parameters if made or name != "self")
        raise InputError(
            f"model: expected one called as model(blocks, x), got {kind}, whose forward takes ({names})"
        ) from None


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _describe(value: Any) -> str:
    return (
        repr(value) if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"
    )
