"""PyG convolutions over edges that stand for others: what can be weighed is, what cannot be is known.

Where a block leaves edges out, those that remain stand for them (`Block.multiplicity`). A sum weighs its
messages by that, and a mean divides by the degree of the whole graph, not by the edges it sees. Attention
normalises itself and an extreme has no scale: they are over the edges there are. Whether a convolution can be
weighed is found by a trial: edges that are there several times, against edges that stand for as many.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.block_edges import OwnDegrees
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.message.reduction import times_rows

if TYPE_CHECKING:
    from weft.interop.pyg.layer import PyG

WEIGHED, OVER_WHAT_IS_THERE, NEITHER = "weighed", "over what is there", "neither"
_EXTREMES = ("MaxAggregation", "MinAggregation", "SoftmaxAggregation", "MedianAggregation")


def adds_up(conv: Any) -> bool:
    """Return whether messages are summed, or averaged."""
    return _aggregation(conv) in ("SumAggregation", "MeanAggregation")


def normalises_itself(conv: nn.Module) -> bool:
    """Return whether the result is an extreme, or a softmax over the neighbours there are."""
    methods = [getattr(type(conv), name, None) for name in ("message", "edge_update", "forward")]
    names = {
        name for method in methods for name in getattr(getattr(method, "__code__", None), "co_names", ())
    }
    return "softmax" in names or _aggregation(conv) in _EXTREMES


@contextlib.contextmanager
def weighing(conv: Any, block: Block, how: str) -> Iterator[None]:
    """Have messages of the convolution weighed, where edges of the block stand for others."""
    stands_for = block.multiplicity()
    if stands_for is None or how == OVER_WHAT_IS_THERE:
        yield
        return
    if how == NEITHER:
        if _differ(stands_for, block):
            raise InputError(
                f"{type(conv).__name__} neither weighs its messages nor normalises itself, and this exchange "
                "leaves out a part of them; use exchange 'exact', 'stale' or 'quantised'"
            )
        yield
        return
    kind = _aggregation(conv)
    factor = block.cached(("pyg messages", kind), lambda: _factors(stands_for, block, kind))
    handle = conv.register_message_forward_hook(lambda _, __, made: times_rows(made, factor))
    accelerated = vars(conv).get("_weft")
    if accelerated is not None:  # a compiled message weighs itself
        accelerated.stands_for = factor
    try:
        yield
    finally:
        handle.remove()
        if accelerated is not None:
            accelerated.stands_for = None


def _factors(stands_for: Tensor, block: Block, aggregation: str) -> Tensor:
    if aggregation == "SumAggregation":
        return stands_for
    seen, degree = block.indptr.diff().double(), block.in_degree("dst").double().clamp(min=1)
    return stands_for * (seen / degree)[block.edge_dst]  # PyG divides by the edges it sees


def _differ(stands_for: Tensor, block: Block) -> bool:
    """Return whether edges into one row stand for different numbers of edges."""
    return bool((stands_for != stands_for[block.indptr[:-1][block.edge_dst]]).any())


def _aggregation(conv: Any) -> str:
    return type(getattr(conv, "aggr_module", None)).__name__


class _Standing(Block):
    """Edges that stand for so many each."""

    stands_for: Tensor

    def multiplicity(self) -> Tensor | None:
        """Return how many edges each edge stands for."""
        return self.stands_for


def repeated_and_standing(graph: Graph) -> tuple[Block, Block]:
    """Return a block whose edges are there one to three times, and one whose edges stand for as many."""
    whole = graph.block()
    times = torch.arange(whole.num_edges) % 3 + 1
    edges = torch.repeat_interleave(times)
    kinds = whole.edge_type
    more: dict[str, Any] = {"num_src": whole.num_src, "edge_data": graph.edge_data}
    more["num_relations"] = whole.num_relations
    indptr = torch.cat([times.new_zeros(1), times.cumsum(0)])[whole.indptr]
    repeated = Block(
        indptr,
        whole.indices[edges],
        edge_ids=edges,
        edge_type=None if kinds is None else kinds[edges],
        **more,
    )
    standing = _Standing(whole.indptr, whole.indices, edge_type=kinds, degrees=OwnDegrees(repeated), **more)
    standing.stands_for = times.double()
    return repeated, standing


def found(layer: "PyG", graph: Graph, tolerance: float) -> str:
    """Return how the convolution of a layer in double precision, made for a trial, is to be weighed."""
    if layer.call == "normalised":
        return WEIGHED
    if normalises_itself(layer.conv):
        return OVER_WHAT_IS_THERE
    if not adds_up(layer.conv):
        return NEITHER
    repeated, standing = repeated_and_standing(graph)
    layer.weighs = WEIGHED
    one, other = layer(repeated, graph.x), layer(standing, graph.x)
    return WEIGHED if float((one - other).abs().max()) <= tolerance * float(one.abs().max()) else NEITHER
