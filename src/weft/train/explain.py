"""`weft.explain(model, graph)`: what the compiler makes of each message of a model, or why nothing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from weft.compiler.compile import Compiled
from weft.compiler.description import Description, described, written
from weft.compiler.execute import read_by_pairs
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.programs.program import Program
from weft.compiler.programs.run import obstacle
from weft.compiler.tracing.trace import Form
from weft.config import Recipe
from weft.errors import GraphError, InputError
from weft.graph.graph import Graph
from weft.graph.message.compiled import Asked, given_to, pairs_of, pays, program_edges, roles_of, watched
from weft.graph.message.rehearsal import other_edges
from weft.strategies.base import strategies
from weft.strategies.call import SameBlock, called
from weft.train.explanation import ExplainedMessage, Explanation
from weft.train.model import adapt, build_model
from weft.train.resolve import SEVERAL, resolve
from weft.train.travel import crossed_rows
from weft.train.workers.run_parts import cut

_BRING_HALOS = ("halo", "sequential")
_MOST_HOPS = 64
"""For a model that does not say how many blocks it reads."""


def explain(model: nn.Module, graph: Graph, *, workers: int = 1) -> Explanation:
    """Return, for each `propagate` of a forward pass, what was written, what runs instead, and why.

    The model runs once on the whole graph, as in training. With `workers` the graph is cut, as `halo` would,
    and each message says what crosses the network. `print` the answer, or give it to
    `weft.report.write_explanation` for a picture.
    """
    return _explained(model, graph, workers, SEVERAL, {})


def _explained(
    model: nn.Module, graph: Graph, workers: int, strategy: str, options: Mapping[str, Any]
) -> Explanation:
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a model, a torch.nn.Module, got {model!r}")
    if not isinstance(graph, Graph):
        raise InputError(f"expected a weft.Graph, got {type(graph).__name__}")
    x: Any = graph.x
    with torch.random.fork_rng(devices=[]), watched() as asked:
        model(called(model, SameBlock(graph.block(), int(getattr(model, "hops", _MOST_HOPS)))), x)
    rows = _halo_rows(graph, workers, strategy, options) if workers > 1 else None
    return Explanation(tuple(_message(each, x, rows) for each in asked), workers)


def _halo_rows(graph: Graph, workers: int, strategy: str, options: Mapping[str, Any]) -> int:
    """Return how many rows the parts of a graph take from each other."""
    kind = strategies[strategy]
    if strategy not in _BRING_HALOS:
        raise InputError(
            f"strategy.name: what crosses is told for {' and '.join(_BRING_HALOS)}, not for {strategy!r}"
        )
    parts = kind.num_parts(options, workers)
    if graph.num_nodes < parts:
        raise GraphError(f"the graph has {graph.num_nodes} nodes, too few for {parts} parts; use fewer")
    quality = cut(graph, parts, kind, options, workers=workers).quality
    assert quality is not None
    return quality.halo_rows


def _message(asked: Asked, x: Any, rows: int | None) -> ExplainedMessage:
    block, how, compiled = asked.block, asked.how, asked.found
    sizes = EdgeCounts(block.num_dst, block.num_src, block.num_edges)
    refused = "" if rows is None else other_edges(how)
    forms = [Form.of(role, tensor) for role, tensor in zip(roles_of(how), given_to(how))]
    return ExplainedMessage(
        name=getattr(how.message, "__qualname__", type(how.message).__name__),
        reduce=how.reduce,
        sources=block.num_src,
        destinations=block.num_dst,
        edges=block.num_edges,
        pays=pays(block, how),
        reason=compiled if isinstance(compiled, str) else "",
        written=written(how.message, forms, how.kernel_reduce, sizes, how.scratch),
        compiled=None if isinstance(compiled, str) else _compiled(asked, sizes),
        crossed=() if rows is None or refused else crossed_rows(how, rows, lambda each: each is x),
        refused=bool(refused),
    )


def _compiled(asked: Asked, sizes: EdgeCounts) -> Description:
    assert not isinstance(asked.found, str)
    made, captured = asked.found
    block = asked.block
    edges = program_edges(block)

    def why(program: Program) -> str:
        like = torch.empty(0, dtype=made.dtype, device=block.device, requires_grad=True)
        return obstacle(program, edges, [like] * len(program.loads))

    inputs = made.inputs(given_to(asked.how), captured)
    return described(made, inputs, sizes, block.device, why, _pairs(asked, made, inputs))


def _pairs(asked: Asked, made: Compiled, inputs: list[Tensor]) -> int:
    """Return how many (relation, source) pairs a message runs on."""
    if made.by_relation is None:
        return 0
    with torch.no_grad():
        kind, _ = read_by_pairs(made, inputs, program_edges(asked.block))
    return pairs_of(asked.block, made, kind)[0].num_src


def explain_recipe(recipe: Recipe, *, workers: int = 1) -> Explanation:
    """Return the same of the model and the graph that a recipe names, cut as its strategy says."""
    resolved = resolve(recipe, workers=workers)
    graph = resolved.open()
    model = resolved.model
    task = resolved.make_task(graph)
    if isinstance(model, str):
        graph = task.with_targets(graph)
        graph = adapt(graph, model, resolved.options, task=task)
        model = build_model(graph, model, resolved.options, task=task, seed=resolved.settings.seed)
    return _explained(model, graph, workers, resolved.strategy, resolved.strategy_options)
