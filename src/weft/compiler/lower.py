"""What stays on the edges becomes a program; everything that it reads is a load.

A value of an edge has a shape of its own, [], [n], [a, b] …; in a program it is [heads, width], the same
numbers in the same order. Which, is decided from the end backwards, since operators demand it: a product
with a matrix has its features in the width, a sum over features leaves heads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import item_shape, name_of, value
from weft.compiler.operators import LOGICAL, NUMBERS, RULES
from weft.compiler.programs.program import Builder, Program, Result, Shape, Source, trimmed
from weft.compiler.tracing.captures import NotCompiled

_MOST_HEADS = 64
_SOURCES: dict[str, Source] = {"source": "other", "destination": "row", "edge": "edge", "shared": "shared"}


@dataclass(frozen=True)
class Loaded:
    """A tensor that a program reads: the value of a node, repeated to a shape, as heads and width."""

    node: fx.Node
    source: Source
    item: tuple[int, ...]
    """The shape for one edge that the value is repeated to."""
    shape: Shape
    dtype: torch.dtype
    """What true and false become numbers of."""


@dataclass(frozen=True)
class Lowered:
    """A reduction as a program."""

    program: Program
    loads: tuple[Loaded, ...]


def lower(node: fx.Node) -> Lowered:
    """Return the program of a `reduced` node, or raise `NotCompiled`."""
    kind, *values = node.args
    if not value(node).is_floating_point():
        raise NotCompiled(f"the messages are {value(node).dtype}")
    reasons = []
    for shapes in _shapes(values):
        try:
            return _lowered(str(kind), values, shapes)
        except NotCompiled as reason:
            reasons.append(str(reason))
    raise NotCompiled(reasons[0])


def _shapes(values: Sequence[Any]) -> list[list[Shape]]:
    """Return the shapes of what is reduced, to be tried in this order."""
    items = [item_shape(each) for each in values]
    if len(items) == 2:
        return [_attended_shapes(*items)]
    (item,) = items
    size = math.prod(item)
    likely = [_as_shape(item, heads) for heads in (len(item) - 1, *range(len(item) + 1)) if heads >= 0]
    others = [(heads, size // heads) for heads in range(1, min(size, _MOST_HEADS) + 1) if size % heads == 0]
    return [[shape] for shape in dict.fromkeys([*likely, *others])]


def _attended_shapes(score: tuple[int, ...], attended: tuple[int, ...]) -> list[Shape]:
    """Return the shapes of a score, one number per head or one for all, and of what it weighs."""
    heads = len(score)
    while heads and score[heads - 1] == 1:
        heads -= 1
    shapes = [_as_shape(item, heads) for item in (score, attended)]
    if score[:heads] != attended[:heads]:
        raise NotCompiled(f"a score of shape {list(score)} for values of shape {list(attended)}")
    return shapes


def _lowered(kind: str, values: Sequence[Any], shapes: Sequence[Shape]) -> Lowered:
    lowering = _Lowering(value(values[-1]).dtype)
    args = tuple(lowering.value(each, shape) for each, shape in zip(values, shapes, strict=True))
    program = lowering.made.program([Result(kind, args)])  # type: ignore[arg-type]
    return _without_unused(Lowered(program, tuple(lowering.loads)))


def _without_unused(lowered: Lowered) -> Lowered:
    """Return the same without loads that only an attempt had asked for."""
    program, kept = trimmed(lowered.program)
    return Lowered(program, tuple(lowered.loads[each] for each in kept))


def _as_shape(item: Sequence[int], heads: int) -> Shape:
    return math.prod(item[:heads]), math.prod(item[heads:])


class _Lowering:
    """Makes values of nodes, each in the shape that is asked of it."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.made, self.dtype = Builder(), dtype
        self.loads: list[Loaded] = []
        self._known: dict[Any, int] = {}

    def value(self, node: fx.Node, shape: Shape) -> int:
        """Return the value of a node as [heads, width], exactly of this shape."""
        key = node, shape
        if key not in self._known:
            self._known[key] = self._value(node, shape)
        return self._known[key]

    def _value(self, node: fx.Node, shape: Shape) -> int:
        where = residency(node)
        if where not in ("edge", "pair") or node.op == "placeholder":
            return self.load(node, item_shape(node), shape)
        try:
            return self._operator(node, shape)
        except NotCompiled:
            if where != "edge":
                raise
            return self.load(node, item_shape(node), shape)

    def load(self, node: fx.Node, item: tuple[int, ...], shape: Shape) -> int:
        """Return the load of a node's value, repeated to `item`."""
        given = value(node).dtype
        wider = given.is_floating_point and torch.promote_types(given, self.dtype) == self.dtype
        if given != torch.bool and not wider:
            raise NotCompiled(f"{given} and {self.dtype} meet on edges")
        return self._loaded(node, _SOURCES[residency(node)], item, shape)

    def weight(self, node: fx.Node) -> int:
        """Return the load of a matrix."""
        if value(node).dtype != self.dtype:
            raise NotCompiled(f"a matrix of {value(node).dtype} meets {self.dtype}")
        shape = value(node).shape
        return self._loaded(node, "weight", (), (shape[0], shape[1]))

    def _loaded(self, node: fx.Node, source: Source, item: tuple[int, ...], shape: Shape) -> int:
        key = node, source, item, shape
        if key not in self._known:
            self._known[key] = self.made.load(source, shape)
            self.loads.append(Loaded(node, source, item, shape, self.dtype))
        return self._known[key]

    def _operator(self, node: fx.Node, shape: Shape) -> int:
        if value(node).dtype not in (self.dtype, torch.bool):
            raise NotCompiled(f"{value(node).dtype} and {self.dtype} meet on edges")
        name, given = name_of(node), node.args[0] if node.args else None
        if name == "reshape":
            return self.value(given, shape)  # type: ignore[arg-type]
        if name == "expand":
            return self.made.expand(self._beside(given, item_shape(node), shape), shape)
        if name in ("sum", "linalg_vector_norm"):
            return self._sum(node, shape) if name == "sum" else self._norm(node, shape)
        if name == "mm":
            return self._product(node, shape)
        if name == "_to_copy" and value(given).dtype == torch.bool:  # type: ignore[arg-type]
            return self.value(given, shape)  # type: ignore[arg-type]
        return self._elementwise(node, name, shape)

    def _elementwise(self, node: fx.Node, name: str, shape: Shape) -> int:
        if name.startswith("bitwise_") and value(node).dtype == torch.bool:
            name = name.replace("bitwise_", "logical_")
        if name == "pow" and node.args[1] in (2, 2.0):
            return RULES["square"](self.made, self._argument(node.args[0], node, shape))
        rule = RULES.get(name)
        if rule is None or set(node.kwargs) - {"approximate"}:
            raise NotCompiled(f"no step for {name}{' with options' if rule else ''}")
        if name in LOGICAL and any(value(each).dtype != torch.bool for each in node.all_input_nodes):
            raise NotCompiled(f"{name} of numbers")
        if name not in NUMBERS:
            return rule(self.made, *(self._argument(each, node, shape) for each in node.args))
        first, *rest = node.args
        if not all(isinstance(each, NUMBERS[name]) for each in rest):
            raise NotCompiled(f"{name} with bounds that are tensors")
        return rule(self.made, self._argument(first, node, shape), *rest, **node.kwargs)

    def _argument(self, given: Any, node: fx.Node, shape: Shape) -> int:
        if isinstance(given, fx.Node):
            return self._beside(given, item_shape(node), shape)
        if not isinstance(given, (int, float)):
            raise NotCompiled(f"{name_of(node)} of {given!r}")
        return self.made.constant(float(given))

    def _beside(self, node: Any, whole: tuple[int, ...], shape: Shape) -> int:
        """Return an argument whose axes lie beside those of a result, which is taken in this shape."""
        item = _aligned(node, whole)
        if math.prod(item) == 1:
            return self._taken(node, item, (1, 1))
        if item == whole:
            return self._taken(node, item, shape)
        for heads in range(len(whole) + 1):
            if _as_shape(whole, heads) == shape:
                break
        else:
            return self._repeated(node, whole, shape)
        parts = ((item[:heads], whole[:heads]), (item[heads:], whole[heads:]))
        if all(math.prod(own) == 1 or own == most for own, most in parts):
            return self._taken(node, item, _as_shape(item, heads))
        return self._repeated(node, whole, shape)

    def _taken(self, node: fx.Node, item: tuple[int, ...], shape: Shape) -> int:
        on_edges = residency(node) in ("edge", "pair")
        return self.value(node, shape) if on_edges else self.load(node, item, shape)

    def _repeated(self, node: fx.Node, whole: tuple[int, ...], shape: Shape) -> int:
        """Return a value that is the same along an axis inside of heads or width: a load that is so made."""
        if residency(node) == "pair":
            raise NotCompiled("a value is repeated along an axis inside of heads or width")
        return self.load(node, whole, shape)

    def _sum(self, node: fx.Node, shape: Shape) -> int:
        given, dims = node.args[:2]
        if node.kwargs:
            raise NotCompiled("a sum in another type")
        return self._summed(given, dims, shape, lambda each: each)

    def _norm(self, node: fx.Node, shape: Shape) -> int:
        given, order, dims = node.args[:3]
        made = self.made
        if node.kwargs or order not in (1, 2):
            raise NotCompiled(f"a norm of order {order}")
        if order == 1:
            return self._summed(given, dims, shape, lambda each: made.step("abs", each))
        total = self._summed(given, dims, shape, lambda each: made.step("mul", each, each))
        # torch gives a norm of 0 the gradient 0, where the root has none.
        positive = made.step("gt", total, made.constant(0.0))
        safe = made.step("where", positive, total, made.constant(1.0))
        return made.step("where", positive, made.step("sqrt", safe), made.constant(0.0))

    def _summed(self, given: Any, dims: Any, wanted: Shape, each: Callable[[int], int]) -> int:
        rank, item = value(given).dim(), item_shape(given)
        fold = len(item) - (rank - 1)  # 1 where the rows of edges are folded with an axis
        axes = sorted(int(dim) % rank - 1 + fold for dim in dims)
        first, last = axes[0], axes[-1] + 1
        if axes != list(range(first, last)):
            raise NotCompiled("a sum over axes apart")
        front, back = math.prod(item[:first]), math.prod(item[last:])
        if back == 1 and wanted == (front, 1):
            return self.made.sum_width(each(self.value(given, _as_shape(item, first))))
        if front == 1 and wanted == (1, back):
            return self.made.sum_heads(each(self.value(given, _as_shape(item, last))))
        raise NotCompiled("a sum leaves features that are used as others")

    def _product(self, node: fx.Node, wanted: Shape) -> int:
        rows, matrix = node.args
        assert isinstance(rows, fx.Node)
        transposed = name_of(matrix) == "t"  # type: ignore[arg-type]
        weight: Any = matrix.args[0] if transposed else matrix  # type: ignore[union-attr]
        size, columns = value(matrix).shape  # type: ignore[arg-type]
        heads = math.prod(item_shape(rows)[:-1])
        given = self.value(rows, (heads, size))
        if wanted == (heads, columns) and size > 1:
            dot = self.made.dot_t if transposed else self.made.dot
            return dot(given, self.weight(weight))
        if wanted == (heads, columns):  # one column: every number times a row of the matrix
            row = self._loaded(weight, "shared", tuple(value(weight).shape), (1, columns))
            return self.made.step("mul", given, row)
        if wanted == (columns, 1) and heads == 1 and transposed:
            each = self._loaded(weight, "shared", (columns, size), (columns, size))
            return self.made.sum_width(self.made.step("mul", given, each))
        raise NotCompiled("the columns of a product are used as heads")


def _aligned(node: fx.Node, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a value with as many axes as a result that it takes part in."""
    item = item_shape(node)
    if len(item) > len(whole):  # of a shared value, whose first axes lie beside that of edges
        return item[len(item) - len(whole) :]
    return (1,) * (len(whole) - len(item)) + item
