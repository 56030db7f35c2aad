"""A model as stages that can be run one after the other over the whole graph.

Layer by layer, every node's row is computed once a layer, whatever the number of nodes that need it. That
works where a model is a chain: each stage reads the rows that the one before gave for all nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.layers.base import Layer, Linear, layers
from weft.layers.dropout import Dropout
from weft.layers.encoder import Encoder
from weft.layers.no_layers import NoLayers
from weft.layers.stack import Stack
from weft.tasks.base import finished, head_of, of_nodes
from weft.train.inference.slicing import BY_ROW, SlicedModel, trace
from weft.train.user.followed import own_of


@dataclass(frozen=True)
class Stage:
    """What is done to all nodes before the next stage begins."""

    hops: int
    """Blocks that it takes."""
    width: int
    """Columns of what it gives; 0 where only a run can tell."""
    run: Callable[[Sequence[Block], Any], Tensor]
    """(blocks, rows of the sources of the first) to rows of the destinations of the last."""
    merges: bool = False
    """Whether what it reduces over some edges of a node may be merged with that over the others."""


@dataclass(frozen=True)
class Chain:
    """The stages of a model and what makes its output from the rows they gave."""

    model: nn.Module
    """All modules, for their mode, parameters and draws."""
    stages: list[Stage]
    keep_all: bool
    """Whether the end needs the rows of every stage, not of the last alone."""
    finish: Callable[[Sequence[Tensor]], Tensor]
    double: bool = False
    """Whether outputs are of type float64, whatever rows are."""
    embed: Callable[[Sequence[Tensor]], Tensor] | None = None
    """Makes a node's embedding, what the last layer or map reads of it, from the rows of the last two stages
    (of all with `keep_all`); None where that is x."""


def chain_of(model: Any, graph: Graph) -> Chain:
    """Return the stages of a Stack, a list of layers or a model of its own, or say why there are none.

    The graph is the one that they are run on.
    """
    model = own_of(model) if isinstance(model, nn.Module) else model
    if isinstance(model, Stack):
        chain = _of_stack(model)
    elif isinstance(model, NoLayers):
        chain = Chain(model, [Stage(model.hops, model.width, model)], False, lambda rows: rows[-1])
    elif isinstance(model, (nn.ModuleList, nn.Sequential, Sequence)):
        chain = _of_list(list(model))
    else:
        sliced = trace(model)
        sliced.check(graph)
        chain = _of_trace(sliced)
    _check_rows_apart(chain.model)
    head = model if isinstance(model, nn.Module) else None
    return chain if head is None or not of_nodes(head_of(head)) else _with_head(chain, head)


def _with_head(chain: Chain, model: nn.Module) -> Chain:
    """Return the chain that ends with the head of a model, which gives double numbers."""
    finish = chain.finish
    return replace(chain, finish=lambda rows: finished(model, finish(rows)).double(), double=True)


def _of_trace(sliced: SlicedModel) -> Chain:
    def stage(number: int) -> Stage:
        layer, widths = sliced.layer(number), sliced.widths(number)

        def run(group: Sequence[Block], h: Any) -> Tensor:
            return sliced.run(number, group, h)

        return Stage(int(layer.hops), sum(widths) if all(widths) else 0, run, _merges(layer))

    stages = [stage(number) for number in range(len(sliced.layers))]
    before = sliced.widths(len(stages) - 2)[-1] if len(stages) > 1 else 0
    embed = (lambda rows: rows[-2][:, -before:]) if before else None
    return Chain(sliced.model, stages, False, lambda rows: sliced.finish(rows[-1]), embed=embed)


def _of_stack(model: Stack) -> Chain:
    def stage(number: int, layer: Any) -> Stage:
        def run(group: Sequence[Block], h: Any) -> Tensor:
            return model.run_layer(number, group, h)

        return Stage(int(layer.hops), layer.out_width, run, _merges(layer))

    stages = [stage(number, layer) for number, layer in enumerate(model.layers)]
    embed = model.join if model.final is not None else _before_last(stages)
    return Chain(model, stages, model.jumping is not None, model.finish, embed=embed)


def _before_last(stages: Sequence[Stage]) -> Callable[[Sequence[Tensor]], Tensor] | None:
    return (lambda rows: rows[-2]) if len(stages) > 1 else None


def _of_list(parts: list[Any]) -> Chain:
    for index, part in enumerate(parts):
        across = isinstance(part, nn.Softmax | nn.LogSoftmax) and part.dim not in (1, -1)
        if across or not isinstance(part, (Layer, Dropout, Encoder, *BY_ROW)):
            raise InputError(
                f"item {index} of the model, {type(part).__name__}, cannot be run on some rows at a time: "
                "expected weft layers and, between them, linear maps, norms, dropout and activations"
            )
    at = [index for index, part in enumerate(parts) if isinstance(part, Layer)]
    if not at:
        raise InputError("the model has no layer of weft: nothing reads edges, call it on the rows instead")
    bounds = [0, *at[1:], len(parts)]
    pieces = [parts[start:stop] for start, stop in pairwise(bounds)]
    model = nn.ModuleList(parts)
    stages = [_stage(piece) for piece in pieces]
    return Chain(model, stages, False, lambda rows: rows[-1], embed=_before_last(stages))


def _stage(piece: list[Any]) -> Stage:
    (layer,) = [part for part in piece if isinstance(part, Layer)]

    def run(group: Sequence[Block], h: Any) -> Tensor:
        for part in piece:
            if isinstance(part, Layer):
                h = part(group[0] if part.hops == 1 else group, h)
            elif isinstance(part, Encoder):
                h = part(group[0], h)
            elif not isinstance(part, Dropout):  # which is off
                h = part(h)
        rows: Tensor = h
        return rows

    width = layer.out_width
    for part in piece[piece.index(layer) :]:
        width = part.out_features if isinstance(part, nn.Linear | Linear) else width
    return Stage(int(layer.hops), width, run, _merges(layer))


def _merges(layer: Layer) -> bool:
    """Return whether a layer reduces over edges by the block's means alone, as those of weft do."""
    return layer.hops == 1 and any(type(layer) is layers[name] for name in layers.names())


def _check_rows_apart(model: nn.Module) -> None:
    for name, module in model.named_modules():
        kept = getattr(module, "track_running_stats", True)
        if not kept:
            raise InputError(
                f"{name} ({type(module).__name__}) keeps no running statistics: it would normalise each "
                "piece of the graph by itself; make it with track_running_stats=True and train it"
            )
