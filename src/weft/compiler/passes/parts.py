"""Joined and cut features are followed to where they come from: a message then has neither.

slice(f(a, b)) = f(slice a, slice b), slice(x W) = x (slice W), f(cat(a, b)) = cat(f(a), f(b)). The sum over
joined features is that of each part, added; the reduction of joined parts is that of each part, joined.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import torch
from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import aten, emit, name_of, reduced, replace, tidy, value
from weft.compiler.passes.normal import sliced


def parts(graph: fx.Graph) -> None:
    """Move slices towards the inputs of a graph and joins towards its end."""
    for _ in range(len(graph.nodes)):
        if not any(_moved(node) for node in list(graph.nodes)):
            break
    tidy(graph)


def _moved(node: fx.Node) -> bool:
    if node.op != "call_function" or not node.users or residency(node) not in ("pair", "edge", "reduced"):
        return False
    name = name_of(node)
    new = _cut(node) if name == "slice" else _joined(node, name)
    if new is not None:
        replace(node, new)
    return new is not None


def _cut(node: fx.Node) -> fx.Node | None:
    given, dim, start, stop = node.args
    assert isinstance(given, fx.Node)
    assert isinstance(dim, int)
    name = name_of(given)
    if residency(given) not in ("pair", "edge"):
        return None
    if name == "mm":
        rows, matrix = given.args
        return emit(node, aten.mm.default, rows, columns(node, matrix, 1, start, stop))
    if name == "cat":
        joined: Any = given.args
        along = int(joined[1]) % value(given).dim()
        if dim == along:
            return _part_of(node, joined[0], dim, start, stop)
        each = [sliced(node, part, dim, start, stop) for part in joined[0]]  # type: ignore[arg-type]
        return emit(node, aten.cat.default, each, along)
    return elementwise_part(node, given, dim, start, stop) if is_elementwise(given) else None  # type: ignore[arg-type]


def columns(at: fx.Node, matrix: Any, dim: int, start: Any, stop: Any) -> fx.Node:
    """Return some rows (dim 0) or columns (1) of a matrix; of a transposed one, the transposed part."""
    if name_of(matrix) == "t":
        part = sliced(at, matrix.args[0], 1 - dim, start, stop)
        return matrix if part is matrix.args[0] else emit(at, aten.t.default, part)  # type: ignore[no-any-return]
    return sliced(at, matrix, dim, start, stop)


def is_elementwise(node: fx.Node) -> bool:
    """Return whether an operator takes its arguments number by number."""
    return node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ())


def elementwise_part(at: fx.Node, node: fx.Node, dim: int, start: int, stop: int) -> fx.Node:
    """Return a part of what an elementwise operator gives, made of parts of its arguments."""
    rank = value(node).dim()

    def part(each: Any) -> Any:
        if not isinstance(each, fx.Node):
            return each
        own = dim - (rank - value(each).dim())
        whole = own < 0 or value(each).shape[own] == 1
        return each if whole else sliced(at, each, own, start, stop)

    return emit(at, node.target, *(part(each) for each in node.args), **node.kwargs)  # type: ignore[arg-type]


def _part_of(at: fx.Node, given: Any, dim: int, start: Any, stop: Any) -> fx.Node:
    found, first = [], 0
    for each in given:
        size = value(each).shape[dim]
        low, high = max(start - first, 0), min(stop - first, size)
        if low < high:
            found.append(sliced(at, each, dim, low, high))
        first += size
    return found[0] if len(found) == 1 else emit(at, aten.cat.default, found, dim)


def _joined(node: fx.Node, name: str) -> fx.Node | None:
    """What an operator gives for joined features, as a join of what it gives for each part."""
    if name in _OF_PARTS:
        return _OF_PARTS[name](node)
    if not is_elementwise(node) or node.kwargs:
        return None
    rank = value(node).dim()
    join = next((each for each in node.all_input_nodes if name_of(each) == "cat"), None)
    if join is None or value(join).dim() != rank or residency(join) not in ("pair", "edge"):
        return None
    given: Any = join.args
    dim = int(given[1]) % rank
    if value(join).shape[dim] != value(node).shape[dim]:
        return None
    made, first = [], 0
    for each in given[0]:
        stop = first + value(each).shape[dim]
        made.append(elementwise_part(node, node, dim, first, stop))
        first = stop
    return emit(node, aten.cat.default, made, dim)


def _reshaped_parts(node: fx.Node) -> fx.Node | None:
    """A reshape of joined features that keeps the axis they are joined along, as a join of reshaped ones."""
    join, shape = cast(Any, node.args)
    if name_of(join) != "cat" or residency(join) not in ("pair", "edge"):
        return None
    before, given = value(join).shape, join.args
    dim = int(given[1]) % len(before)
    ahead = math.prod(before[:dim])
    place = next(
        (i for i in range(len(shape)) if math.prod(shape[:i]) == ahead and shape[i] == before[dim]), None
    )
    if place is None:
        return None
    sizes = [value(each).shape[dim] for each in given[0]]
    made = [
        emit(node, aten.reshape.default, each, [*shape[:place], size, *shape[place + 1 :]])
        for each, size in zip(given[0], sizes)
    ]
    return emit(node, aten.cat.default, made, place)


def _summed_parts(node: fx.Node) -> fx.Node | None:
    """A sum over the axis along which features are joined, as that of each part, added."""
    join, dims, *keep = cast(Any, node.args)
    if name_of(join) != "cat" or residency(join) not in ("pair", "edge") or node.kwargs:
        return None
    rank = value(join).dim()
    if int(join.args[1]) % rank not in [int(dim) % rank for dim in dims]:
        return None
    made = [emit(node, aten.sum.dim_IntList, each, dims, *keep) for each in join.args[0]]
    return reduce(lambda one, two: emit(node, aten.add.Tensor, one, two), made)


def _reduced_parts(node: fx.Node) -> fx.Node | None:
    kind, *values = node.args
    join: Any = values[0]
    if kind == "softmax" or name_of(join) != "cat" or residency(join) not in ("pair", "edge"):
        return None
    made = [emit(node, reduced, kind, each) for each in join.args[0]]
    return emit(node, aten.cat.default, made, join.args[1])


_OF_PARTS: dict[str, Callable[[fx.Node], fx.Node | None]] = {
    "reduced": _reduced_parts,
    "reshape": _reshaped_parts,
    "sum": _summed_parts,
}
