"""A program as flat arrays for the native core: where every value of a tile lies, and in which loops.

Values that are the same for all edges lie first and are made once. The others share places: a value lies
where one lay that is no longer needed. See csrc/program.h for the arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from weft.compiler.native.fuse import WIDE, fused, sparse
from weft.compiler.programs.program import ARITY, BINARY, TERNARY, Program, Result, Shape, Step, broadcast

_TILE_BYTES = 96 << 10
"""What a tile's values and the rows it reads may take: a share of a core's second cache."""
_LEAST_TILE, _MOST_TILE = 32, 256
_PAD = 16
"""Values of the widest vector: steps run on whole vectors, also past the end."""
_PRODUCTS = ("dot", "dot_t")
_LISTS = {"row": 0, "other": 1, "edge": 2}
_COSTLY = ("exp", "expm1", "log", "log1p", "sigmoid", "tanh", "erf", "sin", "cos", "pow", "div", "sqrt")


class Codes(Protocol):
    """Gives the core's code of a step or a kind of result, -1 for none."""

    def __call__(self, name: str, *, kind: bool = False) -> int: ...


@dataclass(frozen=True)
class Encoded:
    """The arrays of a program."""

    header: np.ndarray
    steps: np.ndarray
    results: np.ndarray
    gathers: np.ndarray
    numbers: np.ndarray

    @property
    def addresses(self) -> list[int]:
        """Where the arrays lie."""
        arrays = (self.header, self.steps, self.results, self.gathers, self.numbers)
        return [each.ctypes.data for each in arrays]


@dataclass
class _TileStep:
    """A step of the tile: it may be a load, or repeat for each edge what is the same for all."""

    op: str
    value: int
    args: tuple[int, ...]
    shape: Shape
    once: bool
    tensor: int = -1
    number: float = 0.0


@dataclass
class _Values:
    """The tasks of a program in order, the shapes of values, and which are the same for all edges."""

    program: Program
    tasks: list[_TileStep] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    once: list[bool] = field(default_factory=list)
    direct: set[int] = field(default_factory=set)
    """Loads that are read from their tensors where they are used."""
    flags: frozenset[int] = frozenset()
    """Loads of one byte a number."""
    ready: set[int] = field(default_factory=set)

    def use(self, value: int) -> None:
        """Load a value right before its first use."""
        if value in self.ready or value >= len(self.program.loads):
            return
        load = self.program.loads[value]
        self.ready.add(value)
        if value in self.direct:
            return
        op = "flags" if value in self.flags else load.source
        self.tasks.append(_TileStep(op, value, (), load.shape, self.once[value], value))

    def whole(self, value: int, shape: Shape) -> int:
        """Return the value with one row per edge in this shape."""
        self.use(value)
        if not self.once[value] and self.shapes[value] == shape:
            return value
        self.shapes.append(shape)
        self.once.append(False)
        self.tasks.append(_TileStep("expand", len(self.shapes) - 1, (value,), shape, False))
        return len(self.shapes) - 1


def encode(
    program: Program, itemsize: int, codes: Codes, *, flags: frozenset[int] = frozenset()
) -> Encoded | str:
    """Return the arrays of a program for values of `itemsize` bytes, or what the core does not know.

    `flags` are the loads that are bytes.
    """
    for name in sorted({step.op for step in program.steps}):
        if codes(name) < 0:
            return f"the core has no step {name!r}"
    program = fused(program)
    values = _Values(program, shapes=list(program.shapes), flags=flags)
    values.once = [load.source in ("shared", "weight") for load in program.loads]
    values.direct = _direct(program) - flags
    first = len(program.loads)
    for number, step in enumerate(program.steps, first):
        _add_step(values, number, step)
    results = [_result_values(values, result) for result in program.results]
    return _Layout(values, results, itemsize, codes).encoded()


def _direct(program: Program) -> set[int]:
    """Return the wide loads that only steps and reductions take which read rows wherever they lie."""
    reading = (*BINARY, *TERNARY, "dot_width")
    copied = {each for step in program.steps if step.op not in reading for each in step.args}
    for result in program.results:
        if result.kind == "softmax":
            score, value = result.args
            copied.add(score)
            if broadcast(program.shapes[score], program.shapes[value]) != program.shapes[value]:
                copied.add(value)
        elif result.kind in ("weighted", "mixed"):
            copied.add(result.args[0])
        elif result.kind not in ("sum", "max", "min"):
            copied.update(result.args)
    return {
        number
        for number, load in enumerate(program.loads)
        if load.source in _LISTS and load.shape[0] * load.shape[1] >= WIDE and number not in copied
    }


def _add_step(values: _Values, number: int, step: Step) -> None:
    args, tensor = step.args, -1
    if step.op in _PRODUCTS:
        args, tensor = step.args[:1], step.args[1]
    once = all(values.once[each] for each in args)
    values.once.append(once)
    for each in args:
        values.use(each)
    values.tasks.append(_TileStep(step.op, number, args, step.shape, once, tensor, step.number))


def _result_values(values: _Values, result: Result) -> tuple[Result, tuple[int, ...]]:
    shapes = [values.shapes[each] for each in result.args]
    if result.kind == "softmax":
        shapes = [shapes[0], broadcast(*shapes)]
    elif result.kind == "weight":
        heads = max(shape[0] for shape in shapes)
        shapes = [(heads, width) for _, width in shapes]
    return result, tuple(values.whole(each, shape) for each, shape in zip(result.args, shapes))


class _Layout:
    """Places of values and the rows of the arrays."""

    def __init__(
        self, values: _Values, results: Sequence[tuple[Result, tuple[int, ...]]], itemsize: int, codes: Codes
    ) -> None:
        self.values, self.results, self.codes = values, results, codes
        self.itemsize, self.sparse = itemsize, sparse(values.program)
        self.tasks = [t for t in values.tasks if t.once] + [t for t in values.tasks if not t.once]
        self.num_once = sum(task.once for task in self.tasks)
        self.last_use = {each: i for i, task in enumerate(self.tasks) for each in task.args}
        for _, args in results:
            self.last_use.update(dict.fromkeys(args, len(self.tasks)))
        self.places: dict[int, int] = {}
        self.numbers: list[float] = [0.0]
        widest = self._place(_MOST_TILE)
        read = sum(heads * width for heads, width in (values.shapes[each] for each in values.direct))
        rows = _TILE_BYTES // (itemsize * max(1, (widest - self.once_size) // _MOST_TILE + read))
        self.tile = min(_MOST_TILE, max(_LEAST_TILE, rows // 16 * 16))
        self.end = self._place(self.tile)

    def _place(self, tile: int) -> int:
        """Choose the place of every value for tiles of this many edges and return where the last ends."""
        self.places = {}
        end = 0
        for task in self.tasks[: self.num_once]:
            self.places[task.value] = end
            end += _padded(4 * task.shape[0] * task.shape[1])
        self.once_size = most = end
        live: dict[int, int] = {}
        for i, task in enumerate(self.tasks[self.num_once :], self.num_once):
            size = _padded(tile * task.shape[0] * task.shape[1])
            place = self._in_place(task, i)
            dying = [each for each in live if self.last_use.get(each, -1) < i]
            for each in dying:
                del live[each]
            if place is None:
                place = _gap(self.once_size, size, [(self.places[each], live[each]) for each in live])
            else:
                for each in task.args:
                    if each in live and self.places[each] == place:
                        del live[each]
            self.places[task.value] = place
            live[task.value] = size
            most = max(most, place + size)
        return most

    def _in_place(self, task: _TileStep, number: int) -> int | None:
        """Return the place of an argument of the same shape that is not needed after this step."""
        if task.op not in ARITY:
            return None
        for each in task.args:
            same = self.values.shapes[each] == task.shape and not self.values.once[each]
            if same and each not in self.values.direct and self.last_use[each] == number:
                return self.places[each]
        return None

    def encoded(self) -> Encoded:
        """Return the arrays."""
        steps = [self._step_row(task) for task in self.tasks]
        results, slot, output = [], 0, 0
        arena = self.end
        for result, args in self.results:
            row, scratch, kept, outputs = self._result_row(result, args, arena, slot, output)
            arena, slot, output = arena + scratch, slot + kept, output + outputs
            results.append(row)
        loads = self.values.program.loads
        gathers = [
            [number, self._row_bytes(number), _LISTS[loads[number].source]]
            for number in sorted(self.values.ready)
            if loads[number].source in ("other", "edge")
        ]
        work = 1 + sum(row[-1] for row in steps[self.num_once :]) + sum(row[-1] for row in results)
        sizes = [len(steps), self.num_once, len(results), len(gathers)]
        return Encoded(
            np.array([*sizes, self.tile, arena, self.once_size, slot, work], np.int64),
            np.array(steps, np.int64),
            np.array(results, np.int64),
            np.array(gathers, np.int64),
            np.array(self.numbers, np.float64),
        )

    def _row_bytes(self, load: int) -> int:
        heads, width = self.values.shapes[load]
        return heads * width * (1 if load in self.values.flags else self.itemsize)

    def _depth(self, task: _TileStep) -> int:
        deep = task.op in (*_PRODUCTS, "dot_width")
        return max(self.values.shapes[each][1] for each in task.args) if deep else 1

    def _step_row(self, task: _TileStep) -> list[int]:
        heads, width = task.shape
        tensor, strides = task.tensor, [[0, 0, 0]] * 3
        sizes = [heads * width, 1, 1]
        args = list(task.args)
        if task.op == "constant":
            tensor = len(self.numbers)
            self.numbers.append(task.number)
        elif task.op == "sum_width":
            sizes = [heads, 1, self.values.shapes[args[0]][1]]
        elif task.op == "sum_heads":
            sizes = [1, self.values.shapes[args[0]][0], width]
        elif task.op in _PRODUCTS:
            sizes = [heads, self._depth(task), width]
        elif task.op == "dot_width":
            sizes, strides = [1, heads, self._depth(task)], [self._strides(each, task) for each in args]
        elif args:
            args = args * 2 if task.op == "expand" else args
            strides = [self._strides(each, task) for each in args]
            sizes, strides = _merged(task.shape, strides, by_edge=not self.values.direct.isdisjoint(args))
        rest = 3 - len(args)
        places = [self.places.get(each, 0) for each in args] + [0] * rest
        strides = [*strides, *[[0, 0, 0]] * (3 - len(strides))]
        flat = [each for row in strides for each in row]
        sources = [self._source(each) for each in args] + [(-1, 0)] * rest
        work = heads * width * self._depth(task) * (8 if task.op in _COSTLY else 1)
        row = [self.codes(task.op), self.places[task.value], *places, *sizes, *flat, tensor]
        return [
            *row,
            *[each for each, _ in sources],
            *[each for _, each in sources],
            self._sparse(args),
            work,
        ]

    def _sparse(self, args: Sequence[int]) -> int:
        """Return whether the left side of a product may be mostly 0."""
        return int(bool(args) and args[0] in self.sparse)

    def _source(self, value: int) -> tuple[int, int]:
        """Return the tensor and the list of rows that a value is read by, -1 where it is in the tile."""
        if value not in self.values.direct:
            return -1, 0
        return value, _LISTS[self.values.program.loads[value].source]

    def _strides(self, value: int, task: _TileStep) -> list[int]:
        heads, width = self.values.shapes[value]
        along = 0 if self.values.once[value] and not task.once else heads * width
        return [along, 0 if heads == 1 else width, 0 if width == 1 else 1]

    def _result_row(
        self, result: Result, args: tuple[int, ...], arena: int, slot: int, output: int
    ) -> tuple[list[int], int, int, int]:
        """Return a result's row, the values it needs in the arena and in a slot, and how many outputs."""
        heads, width = self.values.shapes[args[-1]]
        places = [self.places.get(each, 0) for each in args]
        work = 2 * heads * width
        rows = scratch = kept = at = 0
        outputs = 1
        if result.kind == "softmax":
            score_heads = self.values.shapes[args[0]][0]
            heads, width = score_heads, heads * width // score_heads
            scratch, at, outputs = 3 * _up(heads, 64) + 3 * (self.tile * heads + 64), arena, 2
        elif result.kind in ("max", "min"):
            outputs = 2
        elif result.kind in ("weighted", "mixed"):
            weights = self.values.shapes[args[0]][0]
            rows, work = heads, weights * heads * width
            if weights == 1:  # one weight for all heads: they are one row
                heads, width, rows = 1, heads * width, 1
            else:
                heads = 1 if result.kind == "mixed" else weights
        elif result.kind == "shared":
            kept, at = _padded(2 * heads * width), slot
        elif result.kind == "weight":
            rows, heads = heads, self.values.shapes[args[0]][1]
            kept, at = (1 + self._sparse(args)) * _up(heads, 4) * _up(width, _PAD), slot
            work = rows * heads * width
        second = output + 1 if outputs == 2 else -1
        code = self.codes(result.kind, kind=True)
        row = [code, places[0], places[-1], heads, width, rows, output, second, at]
        row += [*self._source(args[-1]), self._sparse(args), work]
        return row, scratch, kept, outputs


def _merged(shape: Shape, strides: list[list[int]], *, by_edge: bool) -> tuple[list[int], list[list[int]]]:
    """Return the loops of an elementwise step, over as few axes as its arguments allow; see ProgramStep.

    `by_edge` keeps the edges an axis of their own.
    """
    axes = [(1, [each[0] for each in strides])]
    for axis, size in enumerate(shape, 1):
        here = [each[axis] for each in strides]
        if size == 1:
            continue
        together = all(outer == inner * size for outer, inner in zip(axes[-1][1], here))
        if together and not (by_edge and len(axes) == 1):
            axes[-1] = (axes[-1][0] * size, here)
        else:
            axes.append((size, here))
    nothing = (1, [0] * len(strides))
    axes = [axes[0], *[nothing] * (3 - len(axes)), *axes[1:]]
    return [size for size, _ in axes], [[here[i] for _, here in axes] for i in range(len(strides))]


def _gap(start: int, size: int, taken: Sequence[tuple[int, int]]) -> int:
    """Return the first place of `size` values from `start` on that no other takes."""
    place = start
    for begin, length in sorted(taken):
        if place + size <= begin:
            break
        place = max(place, begin + length)
    return place


def _up(count: int, to: int) -> int:
    return -(-count // to) * to


def _padded(count: int) -> int:
    return _up(count + _PAD, _PAD)
