"""What operators and programs cost, counted: bytes read, bytes written, operations.

A program reads a row of its own once, one of the other end and one of an edge for each edge; what it makes of
rows alone it makes once a row. An elementwise step is one operation a number, a product two. Caches are not
counted: a gathered row is read as often as it is used.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, fx

from weft.compiler.annotate import movement
from weft.compiler.graphs import name_of, value
from weft.compiler.programs.program import Program, Result, Step
from weft.compiler.tracing.trace import EDGES

_INDEX = 4
_COPIES = frozenset(("cat", "stack", "clone", "contiguous", "_to_copy", "embedding", "index_select", "index"))
"""Operators that move numbers and compute nothing; the others of their kind are views."""


@dataclass(frozen=True)
class Work:
    """Bytes and operations."""

    read: int = 0
    written: int = 0
    operations: int = 0

    def __add__(self, other: "Work") -> "Work":
        """Return both together."""
        return Work(self.read + other.read, self.written + other.written, self.operations + other.operations)


@dataclass(frozen=True)
class EdgeCounts:
    """The numbers of a CSR: rows, rows of the other end, edges."""

    rows: int
    others: int
    edges: int

    @property
    def swapped(self) -> "EdgeCounts":
        """Those of the transposed CSR."""
        return EdgeCounts(self.others, self.rows, self.edges)


def operator_cost(node: fx.Node, rows: Callable[[fx.Node], int]) -> Work:
    """Return what an operator of torch costs that runs by itself, given how many rows a value has."""
    kind, name = movement(node), name_of(node)
    if kind == "shape" and name not in _COPIES:
        return Work()
    made = _numbers(node, rows)
    read = sum(_bytes(each, rows) for each in node.all_input_nodes)
    if kind == "dense":
        return Work(read, _bytes(node, rows), 2 * made * int(value(node.args[-2]).shape[-1]))  # type: ignore[arg-type]
    taken = max((_numbers(each, rows) for each in node.all_input_nodes), default=0)
    operations = {"shape": 0, "elementwise": made}.get(kind, taken)
    return Work(read, _bytes(node, rows), operations)


def values_of(node: fx.Node) -> list[Tensor]:
    """Return the tensors without values that a node stands for: one, or the parts of a split."""
    made = node.meta["val"]
    return [made] if isinstance(made, Tensor) else [each for each in made if isinstance(each, Tensor)]


def _numbers(node: fx.Node, rows: Callable[[fx.Node], int]) -> int:
    return rows(node) * sum(_width(each) for each in values_of(node))


def _bytes(node: fx.Node, rows: Callable[[fx.Node], int]) -> int:
    return rows(node) * sum(_width(each) * each.element_size() for each in values_of(node))


def _width(made: Tensor) -> int:
    return prod(size // EDGES if size and size % EDGES == 0 else size for size in made.shape)


def program_cost(program: Program, sizes: EdgeCounts, dtype: torch.dtype) -> Work:
    """Return what a program costs in one pass over the edges."""
    counts = _counts(program, sizes)
    used = {each for step in program.steps for each in step.args}
    used |= {each for result in program.results for each in result.args}
    numbers = sum(
        _reads(load.source, sizes) * prod(load.shape)
        for number, load in enumerate(program.loads)
        if number in used
    )
    work = sum(count * step_operations(program, step) for step, count in zip(program.steps, counts))
    found = [_result(program, result, sizes, dtype.itemsize) for result in program.results]
    indices = sizes.edges * _INDEX + (sizes.rows + 1) * 8
    return sum(found, Work(numbers * dtype.itemsize + indices, 0, work))


def multiplied(program: Program, sizes: EdgeCounts) -> int:
    """Return the multiplications of its products with matrices, an addition each."""
    steps = zip(program.steps, _counts(program, sizes))
    dots = sum(count * step_operations(program, step) for step, count in steps if step.op in ("dot", "dot_t"))
    weights = [result for result in program.results if result.kind == "weight"]
    return (dots + sum(_result(program, each, sizes, 1).operations for each in weights)) // 2


def operations_again(program: Program, forward: Program, sizes: EdgeCounts) -> int:
    """Return the operations of a pass that make values which the forward pass, of the same loads, made."""
    table: dict[object, int] = {}
    known = set(_numbered(forward, table))
    counts = _counts(program, sizes)
    return sum(
        count * step_operations(program, step)
        for step, count, number in zip(program.steps, counts, _numbered(program, table))
        if number in known
    )


def _numbered(program: Program, table: dict[object, int]) -> list[int]:
    """Return one number per step: the same for the same step of the same values of the same loads."""
    numbers = [table.setdefault(("load", place), len(table)) for place in range(len(program.loads))]
    for step in program.steps:
        key = (step.op, tuple(numbers[each] for each in step.args), step.shape, step.number)
        numbers.append(table.setdefault(key, len(table)))
    return numbers[len(program.loads) :]


def _counts(program: Program, sizes: EdgeCounts) -> list[int]:
    """Return how often each step is taken: once, once a row or for each edge."""
    level = {"shared": 0, "weight": 0, "place": 0, "row": 1, "other": 2, "edge": 2}
    levels = [level[load.source] for load in program.loads]
    for step in program.steps:
        levels.append(max((levels[each] for each in step.args), default=0))
    often = (1, sizes.rows, sizes.edges)
    return [often[each] for each in levels[len(program.loads) :]]


def _reads(source: str, sizes: EdgeCounts) -> int:
    return {"row": sizes.rows, "other": sizes.edges, "edge": sizes.edges}.get(source, 1)


def step_operations(program: Program, step: Step) -> int:
    """Return the operations of a step for one edge."""
    if step.op in ("constant", "expand"):
        return 0
    given = program.shapes[step.args[0]]
    if step.op in ("dot", "dot_t"):
        return 2 * prod(step.shape) * given[1]
    return prod(given) if step.op in ("sum_width", "sum_heads") else prod(step.shape)


def _result(program: Program, result: Result, sizes: EdgeCounts, itemsize: int) -> Work:
    shapes = [program.shapes[each] for each in result.args]
    width = prod(shapes[-1])
    if result.kind in ("edge", "flags"):
        return Work(0, sizes.edges * width * (itemsize if result.kind == "edge" else 1), 0)
    if result.kind == "flags":
        return Work(0, sizes.edges * width, 0)
    if result.kind == "weight":
        a, b = shapes[0][1], shapes[1][1]
        return Work(0, a * b * itemsize, 2 * sizes.edges * max(shapes[0][0], shapes[1][0]) * a * b)
    if result.kind in ("place", "shared"):
        return Work(0, width * itemsize, sizes.edges * width)
    if result.kind == "winner":
        return Work(0, sizes.rows * width * 4, sizes.edges * width)
    written = sizes.rows * width * itemsize
    if result.kind == "sum":
        return Work(0, written, sizes.edges * width)
    if result.kind == "softmax":  # a score is compared and its power taken and summed
        scores = prod(shapes[0])
        return Work(0, written + sizes.rows * scores * itemsize, sizes.edges * (3 * scores + 2 * width))
    return Work(0, written + sizes.rows * width * 4, 2 * sizes.edges * width)


def total(costs: Iterable[Work]) -> Work:
    """Return all together."""
    return sum(costs, Work())
