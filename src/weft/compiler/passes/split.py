"""A linear map over what both ends bring runs on each end: on nodes instead of edges.

[a, b] W = a W₁ + b W₂, (a ± b) W = a W ± b W and (s a) W = s (a W) for a number s an edge.
"""

from typing import Any

from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, emit, has_rows, name_of, plain_name, replace, tidy, value, width
from weft.compiler.passes.parts import columns

_ENDS = ("source", "destination", "shared")


def split(graph: fx.Graph) -> None:
    """Split the linear maps of a graph where that takes them off the edges, or a join away."""
    while True:
        node = next((each for each in graph.nodes if _splits(each)), None)
        if node is None:
            break
        rows, matrix = node.args
        replace(node, _joined(node, rows, matrix) if name_of(rows) == "cat" else mapped(node, rows, matrix))
    tidy(graph)


def _splits(node: fx.Node) -> bool:
    if name_of(node) != "mm":
        return False
    rows: Any = node.args[0]
    if residency(rows) not in ("pair", "edge"):
        return False
    return _is_join(rows) or (residency(rows) == "pair" and ends_alone(rows, value(rows).shape[1]))


def _is_join(rows: fx.Node) -> bool:
    return name_of(rows) == "cat" and rows.args[1] in (1, -1)


def ends_alone(node: Any, size: int) -> bool:
    """Return whether a value is made linearly of values of one end each, `size` numbers wide."""
    if not isinstance(node, fx.Node):
        return False
    if value(node).shape[-1:] != (size,):
        return False
    if residency(node) in _ENDS:
        return value(node).dim() in (1, 2)
    name = plain_name(node)
    if name in ("add", "sub"):
        return all(ends_alone(each, size) for each in node.args)
    if name == "neg":
        return ends_alone(node.args[0], size)
    if name in ("mul", "div"):
        return _factor(node) is not None and ends_alone(_factor(node)[0], size)  # type: ignore[index]
    return False


def _factor(node: fx.Node) -> tuple[Any, Any] | None:
    """Return (value, factor) of a product with a number, of all edges or of each."""
    first, second = node.args[:2]
    if is_number(second):
        return first, second
    return (second, first) if name_of(node) == "mul" and is_number(first) else None


def is_number(value_: Any) -> bool:
    """Return whether this is one number, for all edges or for each."""
    if not isinstance(value_, fx.Node):
        return isinstance(value_, (int, float)) and not isinstance(value_, bool)
    return width(value_) == 1 and (not has_rows(value_) or value(value_).dim() == 2)


def mapped(at: fx.Node, node: Any, matrix: Any) -> fx.Node:
    """Return a value of ends alone times a matrix, each end times the matrix."""
    if residency(node) in _ENDS:
        rows = (
            node
            if value(node).dim() == 2
            else emit(at, aten.reshape.default, node, [1, value(node).shape[0]])
        )
        return emit(at, aten.mm.default, rows, matrix)
    name = name_of(node)
    if name in ("add", "sub"):
        made = [mapped(at, each, matrix) for each in node.args]
        return emit(at, node.target, *made)
    if name == "neg":
        return emit(at, aten.neg.default, mapped(at, node.args[0], matrix))
    found = _factor(node)
    assert found is not None
    return emit(at, node.target, mapped(at, found[0], matrix), found[1])


def _joined(at: fx.Node, rows: Any, matrix: Any) -> fx.Node:
    total, first = None, 0
    for each in rows.args[0]:
        stop = first + value(each).shape[1]
        part = emit(at, aten.mm.default, each, columns(at, matrix, 0, first, stop))
        total = part if total is None else emit(at, aten.add.Tensor, total, part)
        first = stop
    assert total is not None
    return total
