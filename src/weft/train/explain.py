"""`weft.explain(model, graph)`: what the compiler makes of each message of a model, or why nothing."""

from typing import Any

import torch
from torch import nn

from weft.compiler.description import described
from weft.config import Recipe
from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.compiled import Asked, pays, watched
from weft.strategies.call import SameBlock, called
from weft.train.model import adapt, build_model
from weft.train.resolve import resolve

_MOST_HOPS = 64
"""For a model that does not say how many blocks it reads."""


def explain(model: nn.Module, graph: Graph) -> str:
    """Return, for each `propagate` of a forward pass, where its operators run and what is left on edges.

    The model runs once on the whole graph, as in training, without gradients.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a model, a torch.nn.Module, got {model!r}")
    if not isinstance(graph, Graph):
        raise InputError(f"expected a weft.Graph, got {type(graph).__name__}")
    x: Any = graph.x
    with torch.no_grad(), torch.random.fork_rng(devices=[]), watched() as asked:
        model(called(model, SameBlock(graph.block(), int(getattr(model, "hops", _MOST_HOPS)))), x)
    if not asked:
        return "no layer of this model calls block.propagate: aggregate and attend have kernels of their own"
    return "\n".join(line for number, each in enumerate(asked) for line in _message(number, each))


def _message(number: int, asked: Asked) -> list[str]:
    block, how, found = asked.block, asked.how, asked.found
    name = getattr(how.message, "__qualname__", type(how.message).__name__)
    lines = [f"message {number + 1}: {name}, reduced by {how.reduce}, {block.num_edges:,} edges"]
    if isinstance(found, str):
        return [*lines, f"  not compiled: {found}"]
    if not pays(block, how):
        lines.append("  runs as it is: so few edges do not pay; with more it would run so:")
    rows = {"source": block.num_src, "destination": block.num_dst, "edge": block.num_edges}
    return [*lines, *described(found[0], rows)]


def explain_recipe(recipe: Recipe) -> str:
    """Return the same of the model and the graph that a recipe names."""
    resolved = resolve(recipe)
    graph = resolved.open()
    model = resolved.model
    task = resolved.make_task(graph)
    if isinstance(model, str):
        graph = adapt(graph, model, resolved.options, task=task)
        model = build_model(graph, model, resolved.options, task=task, seed=resolved.settings.seed)
    return explain(model, graph)
