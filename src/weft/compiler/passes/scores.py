"""Scores of nodes are products: Σ_d a[h, d] · x[n, h, d] on nodes is x times a matrix of a's rows as blocks.

Attention is written with such sums. A matrix product reads the rows once and writes the scores alone, where
the product of each number and the sum write and read all of them again, and once more in backward.
"""

import math
from typing import Any

import torch
from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, emit, item_shape, name_of, replace, tidy, value
from weft.compiler.passes.normal import reshaped

_MOST = 16
"""Heads up to which a matrix that is mostly zeros costs no more than the rows that it is multiplied with."""


def scores(graph: fx.Graph) -> None:
    """Make weighted sums over the features of nodes matrix products.

    Not under autocast, which makes products in 16 bits and sums in 32.
    """
    if _casts(graph):
        return
    for node in list(graph.nodes):
        pair = _weighted(node)
        if pair is not None:
            replace(node, _product(node, *pair))
    tidy(graph)


def _casts(graph: fx.Graph) -> bool:
    devices = {
        value(node).device.type for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    }
    return any(torch.is_autocast_enabled(each) for each in devices)


def _weighted(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Return (rows, weights) of a sum over the last axis of their product, rows […, heads, d] of nodes."""
    if name_of(node) != "sum" or residency(node) not in ("source", "destination") or node.kwargs:
        return None
    factors, axes = _first_two(node)
    rank = value(factors).dim()
    if [dim % rank for dim in axes] != [rank - 1] or name_of(factors) != "mul":
        return None
    if not all(isinstance(each, fx.Node) for each in factors.args) or len(factors.users) > 1:
        return None
    for rows, weights in (factors.args, factors.args[::-1]):
        if residency(rows) == residency(node) and residency(weights) == "shared" and _fits(rows, weights):
            return rows, weights
    return None


def _first_two(node: fx.Node) -> tuple[Any, Any]:
    return node.args[0], node.args[1]


def _fits(rows: fx.Node, weights: fx.Node) -> bool:
    item, given = item_shape(rows), tuple(value(weights).shape)
    own = given[1:] if len(given) > len(item) and given[0] == 1 else given
    same = value(rows).dtype == value(weights).dtype and value(rows).dim() == len(item) + 1
    return same and own == item and len(item) in (1, 2) and math.prod(item[:-1]) <= _MOST


def _product(at: fx.Node, rows: fx.Node, weights: fx.Node) -> fx.Node:
    heads, width = (1, *item_shape(rows))[-2:]
    blocks = emit(
        at, aten.diag_embed.default, emit(at, aten.t.default, reshaped(at, weights, [heads, width]))
    )
    columns = reshaped(at, emit(at, aten.permute.default, blocks, [1, 0, 2]), [heads * width, heads])
    flat = reshaped(at, rows, [value(rows).shape[0], heads * width])
    return reshaped(at, emit(at, aten.mm.default, flat, columns), list(value(at).shape))
