"""Few forms for many: products without bias, reshapes with their sizes, slices, sums.

Nothing is saved here; every later pass and the lowering have fewer operators to know.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from weft.compiler.graphs import aten, emit, has_rows, name_of, replace_each, value
from weft.compiler.tracing.captures import NotCompiled

_SAME = frozenset(["clone", "contiguous", "alias", "lift_fresh", "lift_fresh_copy"])
_RESHAPES = frozenset(["view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "_reshape_alias"])


def normal(graph: fx.Graph) -> None:
    """Write the operators of a graph in their normal forms."""
    replace_each(graph, lambda node: _normal(node, name_of(node)) if node.op == "call_function" else None)


def _normal(node: fx.Node, name: str) -> fx.Node | None:
    if name in _SAME:
        return node.args[0]  # type: ignore[return-value]
    if name in _RESHAPES:
        return reshaped(node, node.args[0], list(value(node).shape))
    if name in ("_to_copy", "detach") and _changes_nothing(node, name):
        return node.args[0]  # type: ignore[return-value]
    rule = _RULES.get(name)
    return None if rule is None else rule(node)


def reshaped(at: fx.Node, node: Any, shape: list[int]) -> fx.Node:
    """Return a node with another shape: itself, or what it was reshaped from."""
    while name_of(node) == "reshape":
        node = node.args[0]
    if list(value(node).shape) == shape:
        return node  # type: ignore[no-any-return]
    return emit(at, aten.reshape.default, node, shape)


def _changes_nothing(node: fx.Node, name: str) -> bool:
    given, made = value(node.args[0]), value(node)  # type: ignore[arg-type]
    if name == "detach":
        return not given.is_floating_point() or not any(
            each.op == "placeholder" for each in _ancestors(node.args[0])
        )
    return given.dtype == made.dtype and given.device == made.device


def _ancestors(node: Any) -> set[fx.Node]:
    found, stack = set(), [node]
    while stack:
        each = stack.pop()
        if each not in found:
            found.add(each)
            stack += each.all_input_nodes
    return found


def _addmm(node: fx.Node) -> fx.Node | None:
    if node.kwargs:
        return None
    bias, rows, matrix = node.args
    return emit(node, aten.add.Tensor, emit(node, aten.mm.default, rows, matrix), bias)


def _item(node: fx.Node) -> fx.Node | None:
    """A part of a split value, as a slice of it; the first result of a layer norm by its formula."""
    whole, place = node.args
    assert isinstance(whole, fx.Node)
    assert isinstance(place, int)
    name = name_of(whole)
    if name == "native_layer_norm" and place == 0 and has_rows(node):
        return _layer_norm(node, whole)
    if name not in ("split", "split_with_sizes", "unbind"):
        return None
    given: Any = whole.args[0]
    default = 1 if name == "unbind" else 2
    axis: Any = whole.args[default] if len(whole.args) > default else 0
    dim = int(axis) % value(given).dim()
    sizes = [value_.shape[dim] if name != "unbind" else 1 for value_ in whole.meta["val"]]
    start = sum(sizes[:place])
    part = sliced(node, given, dim, start, start + sizes[place])
    return part if name != "unbind" else reshaped(node, part, list(value(node).shape))


def contracted(node: fx.Node, ranks: tuple[int, ...]) -> tuple[Any, int] | None:
    """Return (product, axis) where a node sums a product of rows over one axis, counted from the last: -1."""
    if node.target is not aten.sum.dim_IntList or node.kwargs:
        return None
    given: Any = node.args[0]
    axes: Any = node.args[1]
    if name_of(given) != "mul" or value(given).dim() not in ranks or not has_rows(given) or len(axes) != 1:
        return None
    rank = value(given).dim()
    return given, axes[0] % rank - rank


def sliced(at: fx.Node, node: fx.Node, dim: int, start: int, stop: int) -> fx.Node:
    """Return a part of a node's value along an axis."""
    if start == 0 and stop == value(node).shape[dim]:
        return node
    return emit(at, aten.slice.Tensor, node, dim, start, stop)


def _slice(node: fx.Node) -> fx.Node | None:
    given, dim, start, stop, step = _filled(node, (None, 0, None, None, 1))
    size = value(given).shape[dim]
    if step != 1:
        return None
    first, last, _ = slice(start, stop).indices(size)
    dim %= value(given).dim()
    if node.args == (given, dim, first, last):
        return None
    return sliced(node, given, dim, first, last)


def _select(node: fx.Node) -> fx.Node:
    given, dim, place = node.args
    dim %= value(given).dim()  # type: ignore[arg-type,operator]
    place %= value(given).shape[dim]  # type: ignore[arg-type,operator]
    part = sliced(node, given, dim, place, place + 1)  # type: ignore[arg-type]
    return reshaped(node, part, list(value(node).shape))


def _filled(node: fx.Node, defaults: tuple[Any, ...]) -> list[Any]:
    return [*node.args, *defaults[len(node.args) :]]


def _mean(node: fx.Node) -> fx.Node | None:
    given, dims, keep = _filled(node, (None, None, False))[:3]
    if not isinstance(dims, (tuple, list)) or not dims or node.kwargs:
        return None
    _need_range(node)
    count = math.prod(value(given).shape[dim] for dim in dims)
    total = emit(node, aten.sum.dim_IntList, given, list(dims), keep)
    return emit(node, aten.div.Tensor, total, float(count))


def _need_range(node: fx.Node) -> None:
    """Refuse what torch sums in 32 bits: written out, its sum would end at float16's largest number."""
    given = node.args[0]
    if isinstance(given, fx.Node) and value(given).dtype == torch.float16:
        raise NotCompiled(f"{name_of(node)}: its sum may be beyond float16")


def _layer_norm(node: fx.Node, whole: fx.Node) -> fx.Node:
    given, shape, weight, bias, eps = whole.args
    _need_range(whole)
    dims, count = list(range(-len(shape), 0)), float(math.prod(shape))  # type: ignore[arg-type]
    mean = emit(node, aten.div.Tensor, emit(node, aten.sum.dim_IntList, given, dims, True), count)
    apart = emit(node, aten.sub.Tensor, given, mean)
    square = emit(node, aten.mul.Tensor, apart, apart)
    spread = emit(node, aten.div.Tensor, emit(node, aten.sum.dim_IntList, square, dims, True), count)
    made = emit(
        node, aten.mul.Tensor, apart, emit(node, aten.rsqrt.default, emit(node, aten.add.Tensor, spread, eps))
    )
    made = made if weight is None else emit(node, aten.mul.Tensor, made, weight)
    return made if bias is None else emit(node, aten.add.Tensor, made, bias)


def _scaled(target: Callable[..., Any]) -> Callable[[fx.Node], fx.Node | None]:
    """a ± alpha b, with alpha as a product of its own."""

    def rule(node: fx.Node) -> fx.Node | None:
        alpha = node.kwargs.get("alpha", 1)
        if alpha == 1:
            return None
        return emit(node, target, node.args[0], emit(node, aten.mul.Tensor, node.args[1], alpha))

    return rule


def _stack(node: fx.Node) -> fx.Node | None:
    """A join along a new axis, as one along an axis of size 1."""
    shape = list(value(node).shape)
    dim = int(_filled(node, (None, 0))[1]) % len(shape)  # type: ignore[arg-type]
    given: Any = node.args[0]
    shape[dim] = 1
    return _cat_of(node, [reshaped(node, each, shape) for each in given], dim)


def _cat(node: fx.Node) -> fx.Node | None:
    given: Any = node.args[0]
    return given[0] if len(given) == 1 else None


def _cat_of(at: fx.Node, given: list[fx.Node], dim: int) -> fx.Node:
    return given[0] if len(given) == 1 else emit(at, aten.cat.default, given, dim)


def _bmm(node: fx.Node) -> fx.Node | None:
    """A row times a matrix for each edge, as products that are added up."""
    rows, matrices = node.args
    edges, count, size = value(rows).shape  # type: ignore[arg-type]
    if count != 1 or not has_rows(node):
        return None
    column = reshaped(node, rows, [edges, size, 1])
    return emit(node, aten.sum.dim_IntList, emit(node, aten.mul.Tensor, column, matrices), [1], True)


def _rsub(node: fx.Node) -> fx.Node | None:
    if node.kwargs or len(node.args) > 2 or not isinstance(node.args[0], fx.Node):
        return None
    if isinstance(node.args[1], fx.Node):
        return emit(node, aten.sub.Tensor, node.args[1], node.args[0])
    return emit(node, aten.add.Tensor, emit(node, aten.neg.default, node.args[0]), node.args[1])


def _expand(node: fx.Node) -> fx.Node | None:
    shape = list(value(node).shape)
    if list(value(node.args[0]).shape) == shape:  # type: ignore[arg-type]
        return node.args[0]  # type: ignore[return-value]
    return None if node.args[1] == shape else emit(node, aten.expand.default, node.args[0], shape)


_RULES: dict[str, Callable[[fx.Node], fx.Node | None]] = {
    "addmm": _addmm,
    "_item": _item,
    "slice": _slice,
    "select": _select,
    "mean": _mean,
    "add": _scaled(aten.add.Tensor),
    "sub": _scaled(aten.sub.Tensor),
    "rsub": _rsub,
    "bmm": _bmm,
    "cat": _cat,
    "stack": _stack,
    "expand": _expand,
}
