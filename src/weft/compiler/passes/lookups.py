"""A row times the matrix of its edge's relation is one product per relation, never one matrix per edge.

`(h.unsqueeze(1) @ w[kind]).squeeze(1)` gathers a matrix for each edge. The same numbers are those of
`relation_matmul(kind, h, w)`, which sorts rows by relation. One number per edge that multiplies the row
multiplies the product instead, so that the row is one of nodes where it can be. A matrix of no more numbers
than its row and its result is looked up as it is written. A matrix for each of a few heads is one matrix with
theirs along its diagonal: more operations, but one product.
"""

from typing import Any

import torch
from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, emit, has_rows, item_shape, name_of, plain_name, replace_each, value
from weft.compiler.passes.normal import contracted, reshaped
from weft.compiler.passes.split import is_number
from weft.compiler.tracing.trace import EDGES
from weft.kernels.relation import relation_matmul_op

_SHAPES = ("reshape", "permute", "transpose")
_NUMBERS = (torch.int32, torch.int64)
_FEW = 8
"""Heads up to which a matrix of their blocks, mostly zeros, is the faster."""


def lookups(graph: fx.Graph) -> None:
    """Make products of rows with matrices that were looked up products by relation."""
    replace_each(graph, _product)


def _product(node: fx.Node) -> fx.Node | None:
    """Return the sum over an axis of one matrix per edge times a row, as a product by relation."""
    found = contracted(node, (3, 4))
    if found is None:
        return None
    given, axis = found
    _, *heads, height, width = value(given).shape
    if axis not in (-2, -1) or not _pays(height, width) or any(each > _FEW for each in heads):
        return None
    for matrix, rows in (given.args[:2], given.args[1::-1]):
        if _is_matrix(matrix, given) and _is_row(rows, given, axis):
            return _by_relation(node, matrix, rows, axis)
    return None


def _pays(height: int, width: int) -> bool:
    """Return whether a matrix has more numbers than its row and its result together."""
    return height * width > height + width


def _is_like(node: Any, other: fx.Node) -> bool:
    same = isinstance(node, fx.Node) and value(node).shape == value(other).shape
    return same and value(node).dtype == value(other).dtype


def _is_matrix(node: Any, product: fx.Node) -> bool:
    return _is_like(node, product) and _looked_up(node) is not None


def _is_row(node: Any, product: fx.Node, axis: int) -> bool:
    shape = list(value(product).shape)
    shape[-3 - axis] = 1
    same = isinstance(node, fx.Node) and value(node).dtype == value(product).dtype
    return same and list(value(node).shape) == shape and shape[0] == EDGES


def _looked_up(node: fx.Node) -> fx.Node | None:
    """Return the lookup, by one number per edge, that a value only has another shape of."""
    while name_of(node) in _SHAPES and _keeps_rows(node):
        node = node.args[0]  # type: ignore[assignment]
    if node.target is not aten.index.Tensor:
        return None
    places: Any = node.args[1]
    if len(places) != 1 or value(places[0]).dtype not in _NUMBERS:
        return None
    table: Any = node.args[0]
    fits = residency(table) == "shared" and has_rows(places[0]) and item_shape(places[0]) == ()
    return node if fits else None


def _keeps_rows(node: fx.Node) -> bool:
    given: Any = node.args[0]
    return bool(value(node).shape[0] == value(given).shape[0] == EDGES)


def _by_relation(at: fx.Node, matrix: fx.Node, rows: fx.Node, axis: int) -> fx.Node:
    lookup: Any = _looked_up(matrix)
    table = _reshaped_table(at, matrix, lookup)
    if axis == -1:  # a matrix times a column
        table = emit(at, aten.transpose.int, table, -2, -1)
    table = _diagonal(at, table) if value(table).dim() == 4 else table
    flat, factors = _apart(reshaped(at, rows, [EDGES, value(table).shape[1]]))
    made = emit(at, relation_matmul_op, lookup.args[1][0], flat, table)
    for target, factor in reversed(factors):
        made = emit(at, target, made, factor)
    return reshaped(at, made, list(value(at).shape))


def _diagonal(at: fx.Node, table: fx.Node) -> fx.Node:
    """Return [R, H · K, H · N], the matrices of all heads along the diagonal, of a table [R, H, K, N]."""
    made = value(table)
    relations, heads, height, width = made.shape
    eye = emit(at, aten.eye.default, heads, dtype=made.dtype, device=made.device)
    own = emit(at, aten.reshape.default, eye, [1, heads, 1, heads, 1])
    blocks = emit(at, aten.mul.Tensor, emit(at, aten.unsqueeze.default, table, 3), own)
    return emit(at, aten.reshape.default, blocks, [relations, heads * height, heads * width])


def _reshaped_table(at: fx.Node, node: fx.Node, lookup: fx.Node) -> fx.Node:
    """Return the table in the shape that was given to what was read from it."""
    if node is lookup:
        return node.args[0]  # type: ignore[return-value]
    table = _reshaped_table(at, node.args[0], lookup)  # type: ignore[arg-type]
    if name_of(node) != "reshape":
        return emit(at, node.target, table, *node.args[1:])  # type: ignore[arg-type]
    return emit(at, aten.reshape.default, table, [value(table).shape[0], *value(node).shape[1:]])


def _apart(rows: fx.Node) -> tuple[fx.Node, list[tuple[Any, Any]]]:
    """Return rows without the numbers of edges that they are multiplied with or divided by, and these."""
    factors: list[tuple[Any, Any]] = []
    while plain_name(rows) in ("mul", "div"):
        first, second = rows.args[:2]
        if name_of(rows) == "mul" and is_number(first):
            first, second = second, first
        if not _is_like(first, rows) or not is_number(second):
            break
        factors.append((rows.target, second))
        rows = first  # type: ignore[assignment]
    return rows, factors
