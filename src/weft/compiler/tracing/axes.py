"""Messages whose rows lie along another axis than the first: the same operators, with rows first.

PyG reads rows along any axis (`node_dim`), as in [stacks, nodes, features]. Every value whose axis of edges
or rows is not the first is made again with that axis in front; what comes out is moved back by its caller.
"""

from typing import Any

import torch
from torch import fx

from weft.compiler.graphs import are_numbers, aten, emit, name_of, replace, tidy, value
from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.trace import EDGES, ROWS

_SCATTERS = ("scatter_add", "scatter_reduce")
_FACTORIES = ("zeros", "new_zeros")
_SAME = ("detach", "clone", "alias")


def rows_first(graph: fx.Graph) -> None:
    """Rewrite a graph of a message that reduces its edges itself: rows along the first axis of all values."""
    if not any(node.meta.get("role") == "index" for node in graph.nodes):
        return
    if not any(_axis(node) for node in graph.nodes if node.op == "call_function"):
        return
    moved: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or are_numbers(node):
            continue
        if not _axis(node) and moved.keys().isdisjoint(node.all_input_nodes):
            continue
        new = _moved(node, moved)
        if _axis(node):
            moved[node] = new
        else:
            replace(node, new)
    tidy(graph)


def _axis(node: fx.Node) -> int | None:
    """Return the axis of edges or rows of a value; None where it has none."""
    made = node.meta.get("val")
    if not isinstance(made, torch.Tensor):
        return None
    found = [axis for axis, size in enumerate(made.shape) if size and (size % EDGES == 0 or size % ROWS == 0)]
    return found[0] if found else None


def _moved(node: fx.Node, moved: dict[fx.Node, fx.Node]) -> fx.Node:
    """Return the value of a node with its rows along the first axis."""
    name, args = name_of(node), [*node.args]
    if name == "permute":
        return _permuted(node, moved)
    if name in _FACTORIES:
        sizes: Any = args[-1]
        return emit(node, node.target, *args[:-1], _front(sizes, _axis(node)), **node.kwargs)  # type: ignore[arg-type]
    if name in _SCATTERS and args[1] == _axis(node):
        return _scattered(node, moved)
    if name == "index_select" and args[1] == _axis(node):
        return emit(node, node.target, moved.get(args[0], args[0]), 0, args[2])  # type: ignore[arg-type]
    if torch.Tag.pointwise in getattr(node.target, "tags", ()) or name in _SAME:
        beside = [_beside(each, node, moved) if isinstance(each, fx.Node) else each for each in args]
        return emit(node, node.target, *beside, **node.kwargs)  # type: ignore[arg-type]
    raise NotCompiled(f"{name}: rows are not along the first axis")


def _front(sizes: Any, axis: int | None) -> list[Any]:
    place = axis or 0
    return [sizes[place], *sizes[:place], *sizes[place + 1 :]]


def _permuted(node: fx.Node, moved: dict[fx.Node, fx.Node]) -> fx.Node:
    given: Any = node.args[0]
    dims: Any = node.args[1]
    order = [int(dim) % len(dims) for dim in dims]
    lies = _front(
        list(range(len(dims))), _axis(given)
    )  # by axis of what is at hand, the axis of what was given
    wanted = _front(order, _axis(node))
    places = [lies.index(each) for each in wanted]
    base = moved.get(given, given)
    return base if places == sorted(places) else emit(node, aten.permute.default, base, places)


def _scattered(node: fx.Node, moved: dict[fx.Node, fx.Node]) -> fx.Node:
    base, _, numbers, values, *rest = node.args
    rows: Any = moved.get(values, values)  # type: ignore[arg-type]
    while isinstance(numbers, fx.Node) and numbers.op == "call_function":
        numbers = numbers.args[0]  # type: ignore[assignment]
    shape = list(value(rows).shape)
    column = emit(node, aten.view.default, numbers, [shape[0], *[1] * (len(shape) - 1)])
    places = emit(node, aten.expand.default, column, shape)
    zeros = moved.get(base, base)  # type: ignore[arg-type]
    return emit(node, node.target, zeros, 0, places, rows, *rest, **node.kwargs)  # type: ignore[arg-type]


def _beside(given: fx.Node, node: fx.Node, moved: dict[fx.Node, fx.Node]) -> fx.Node:
    """Return an argument of an elementwise operator with its axes beside those of the moved result."""
    rank, axis = value(node).dim(), _axis(node) or 0
    own = [1] * (rank - value(given).dim()) + list(value(given).shape)
    has_rows = _axis(given) is not None
    if not has_rows and own[axis] != 1:
        raise NotCompiled("a value for each row is not one of the rows")
    shape = [*([own[axis]] if has_rows else []), *own[:axis], *own[axis + 1 :]]
    return emit(node, aten.reshape.default, moved.get(given, given), shape)
