"""A function of an edge as a short program, the same for every backend.

A program runs over the edges of each row of a CSR. For one edge every value is a small matrix [heads, width],
1 where it is the same along that axis. It loads rows of its tensors, takes steps, and its results are reduced
over the edges of the row, stored one row per edge, or summed over all edges. The forward pass and both halves
of the backward pass (over rows, and over the transposed CSR) are programs alike.

A backend gives an edge the same bits wherever it lies among the others: the gradient of an extreme goes to
the edges whose value, made again in the other order, is the row's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast

import torch
from torch import Tensor

Shape = tuple[int, int]
Source = Literal["row", "other", "edge", "place", "shared", "weight"]
Kind = Literal[
    "sum",
    "max",
    "min",
    "winner",
    "softmax",
    "edge",
    "flags",
    "place",
    "shared",
    "weight",
    "weighted",
    "mixed",
]
"""The last two only in what is made of a program for the native core, see `fuse`."""

UNARY = (
    *("neg", "abs", "sign", "not", "relu", "reciprocal", "sqrt", "exp", "expm1", "log", "log1p"),
    *("sigmoid", "tanh", "erf", "sin", "cos"),
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "eq", "ne", "lt", "le", "gt", "ge", "same")
"""Comparisons give 1 or 0; `same` is `eq` that also holds for two NaN."""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "same", "not")
IDENTITIES = ("is_other", "is_row")
"""1 where a whole number, which is loaded, is that of the edge's other end, or of its row; else 0."""
TERNARY = ("where",)
TIED = -2
"""The winner of an extreme that edges of several other ends attain."""
ARITY = dict.fromkeys((*UNARY, *IDENTITIES), 1) | dict.fromkeys(BINARY, 2) | dict.fromkeys(TERNARY, 3)


@dataclass(frozen=True)
class Load:
    """A tensor that a program reads.

    `row` [rows, heads, width] is read at the row that the program is at, `other` at the other end of the
    edge, `edge` [edges, heads, width] at the edge's own number, `place` [places, heads, width] at its place
    in the row; `shared` [heads, width] is the same for all edges, and so is `weight`, a matrix that only
    `dot` and `dot_t` take.
    """

    source: Source
    shape: Shape


@dataclass(frozen=True)
class Step:
    """One operation on values before it, by number: the loads come first, then the steps.

    Beside the elementwise ones: `constant`, `expand` to a shape, `sum_width`, `sum_heads`, `dot` and `dot_t`
    of a value [heads, k] with a weight.
    """

    op: str
    args: tuple[int, ...]
    shape: Shape
    number: float = 0.0
    """The value of a `constant`."""


@dataclass(frozen=True)
class Result:
    """What becomes of values: one tensor, two for an extreme and a softmax.

    sum              [rows, heads, width], 0 for a row without edges
    max, min         the extreme, 0 for a row without edges; and how many edges attain it, int32
    winner           int32, the other end of the edges that attain the extreme that is the first result; −1
                     for a row without edges, `TIED` where they have several
    softmax          of (score [heads, 1], value): Σ value · softmax(score); and log Σ exp score, −inf for a
                     row without edges
    edge             [edges, heads, width], at the edge's own number
    flags            the same of whole numbers below 256, as bytes; an `edge` load reads them again
    place            [places, heads, width], the sum over all edges of one place in their rows
    shared           [heads, width], the sum over all edges
    weight           of (a, b): Σ over edges and heads of aᵀ b, [a's width, b's width]
    """

    kind: Kind
    args: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """Loads, steps and results."""

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]

    def __hash__(self) -> int:
        """Return the hash, computed once: programs are keys of what is made for them."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash((self.loads, self.steps, self.results))
            object.__setattr__(self, "_hash", known)
        return known  # type: ignore[no-any-return]

    @property
    def shapes(self) -> list[Shape]:
        """The shape of every value, by number."""
        return [load.shape for load in self.loads] + [step.shape for step in self.steps]

    @property
    def swapped(self) -> "Program":
        """The same program over the transposed CSR: what was read at the row is read at the other end."""
        swap: dict[Source, Source] = {"row": "other", "other": "row"}
        ends = dict(zip(IDENTITIES, reversed(IDENTITIES)))
        loads = tuple(Load(swap.get(load.source, load.source), load.shape) for load in self.loads)
        steps = tuple(replace(step, op=ends.get(step.op, step.op)) for step in self.steps)
        return Program(loads, steps, self.results)


def trimmed(program: Program) -> tuple[Program, tuple[int, ...]]:
    """Return a program without the loads that nothing reads, and the places of those that are left."""
    used = {each for step in program.steps for each in step.args}
    used |= {each for result in program.results for each in result.args}
    first = len(program.loads)
    kept = [number for number in range(first) if number in used]
    places = {old: new for new, old in enumerate([*kept, *range(first, first + len(program.steps))])}
    made = Program(
        tuple(program.loads[each] for each in kept),
        tuple(replace(step, args=tuple(places[each] for each in step.args)) for step in program.steps),
        tuple(Result(r.kind, tuple(places[each] for each in r.args)) for r in program.results),
    )
    return made, tuple(kept)


@dataclass(frozen=True)
class Edges:
    """The CSR that a program runs over.

    `other` [E] is the other end of each edge, in row order; `numbers` [E] the place of each edge in tensors
    of one row per edge, None where that is the order here. Where they are `padded` the last ones belong to no
    row; how many the device alone knows, and it is not asked, since a CUDA graph may be in the making.
    """

    indptr: Tensor
    other: Tensor
    num_other: int
    numbers: Tensor | None = None
    padded: bool = False
    places: int = 0
    """How many edges each row has, where all have as many and something goes by their place; else 0.

    There an edge whose other end is below 0 is none, but keeps its place and its number.
    """

    @property
    def num_rows(self) -> int:
        """The rows of the CSR."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """The edges of the CSR."""
        return len(self.other)

    @cached_property
    def unread_rows(self) -> Tensor | None:
        """Which rows have no edge, [rows] of true and false; None: all have one."""
        unread = self.indptr.diff() == 0
        return unread if self.padded or bool(unread.any()) else None

    @cached_property
    def unread_other(self) -> Tensor | None:
        """Which rows of the other end no edge reads; None: all are read."""
        read = self.other.long()
        if self.padded:  # one row more, which the edges of no row read
            number = torch.arange(self.num_edges, device=read.device)
            read = torch.where(number < self.indptr[-1], read, self.num_other)
        unread = torch.ones(self.num_other + 1, dtype=torch.bool, device=read.device)
        unread = unread.index_fill_(0, read, False)[:-1]
        return unread if self.padded or bool(unread.any()) else None

    @cached_property
    def unread_by_both(self) -> Tensor | None:
        """Which nodes have no edge and are read by none, where both ends are the same nodes; None: none."""
        rows, other = self.unread_rows, self.unread_other
        if rows is None or other is None or len(rows) != len(other):
            return None
        unread = rows & other
        return unread if self.padded or bool(unread.any()) else None


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape of an elementwise step of values of these shapes."""
    axes = [max(sizes) for sizes in zip(*shapes)]
    for shape in shapes:
        if any(size not in (1, most) for size, most in zip(shape, axes)):
            raise ValueError(f"shapes {list(shapes)} do not go together")
    return axes[0], axes[1]


@dataclass
class Builder:
    """A program in the making. A step that was taken before with the same arguments is not taken again.

    Values are numbered in the order they come in; in the program the loads come first.
    """

    _values: list[Load | Step] = field(default_factory=list)
    _known: dict[Step, int] = field(default_factory=dict)

    @property
    def loads(self) -> list[Load]:
        """The loads so far."""
        return [each for each in self._values if isinstance(each, Load)]

    def load(self, source: Source, shape: Shape) -> int:
        """Add a tensor."""
        self._values.append(Load(source, shape))
        return len(self._values) - 1

    def shape(self, value: int) -> Shape:
        """Return the shape of a value."""
        return self.at(value).shape

    def at(self, value: int) -> Load | Step:
        """Return the load or the step that makes a value."""
        return self._values[value]

    def constant(self, number: float) -> int:
        """Add a number; −0, which equals 0 where steps are compared, as its negative."""
        if number == 0.0 and math.copysign(1.0, number) < 0.0:
            return self.step("neg", self.constant(0.0))
        return self._add(Step("constant", (), (1, 1), float(number)))

    def step(self, op: str, *args: int) -> int:
        """Add an elementwise step."""
        assert len(args) == ARITY[op], op
        return self._add(Step(op, args, broadcast(*(self.shape(each) for each in args))))

    def sum_width(self, value: int) -> int:
        """Add the sum over the width."""
        heads, width = self.shape(value)
        return value if width == 1 else self._add(Step("sum_width", (value,), (heads, 1)))

    def sum_heads(self, value: int) -> int:
        """Add the sum over the heads."""
        heads, width = self.shape(value)
        return value if heads == 1 else self._add(Step("sum_heads", (value,), (1, width)))

    def expand(self, value: int, shape: Shape) -> int:
        """Add the value repeated along the axes where it is the same."""
        broadcast(self.shape(value), shape)
        return value if self.shape(value) == shape else self._add(Step("expand", (value,), shape))

    def dot(self, value: int, weight: int) -> int:
        """Add value · W of a weight [k, n], for each head."""
        (heads, width), (rows, columns) = self.shape(value), self.shape(weight)
        assert width == rows, "the width is the weight's first axis"
        return self._add(Step("dot", (value, weight), (heads, columns)))

    def dot_t(self, value: int, weight: int) -> int:
        """Add value · Wᵀ of a weight [k, n], for each head."""
        (heads, width), (rows, columns) = self.shape(value), self.shape(weight)
        assert width == columns, "the width is the weight's second axis"
        return self._add(Step("dot_t", (value, weight), (heads, rows)))

    def repeat(self, step: Step) -> int:
        """Add a step of another program, its arguments already numbered as here."""
        return self._add(step)

    def needed(self, results: Sequence[Result]) -> set[int]:
        """Return the values that results need."""
        found = {value for result in results for value in result.args}
        for number in range(len(self._values) - 1, -1, -1):
            each = self._values[number]
            if number in found and isinstance(each, Step):
                found.update(each.args)
        return found

    def program(self, results: Sequence[Result]) -> Program:
        """Return the program without the steps that no result needs; every load stays."""
        values, needed = self._values, self.needed(results)
        loads = [number for number, each in enumerate(values) if isinstance(each, Load)]
        kept = [number for number in sorted(needed) if isinstance(values[number], Step)]
        places = {old: new for new, old in enumerate([*loads, *kept])}
        steps = (cast(Step, values[number]) for number in kept)
        return Program(
            tuple(self.loads),
            tuple(replace(step, args=tuple(places[each] for each in step.args)) for step in steps),
            tuple(Result(r.kind, tuple(places[each] for each in r.args)) for r in results),
        )

    def _add(self, step: Step) -> int:
        if step not in self._known:
            self._values.append(step)
            self._known[step] = len(self._values) - 1
        return self._known[step]
