"""The gradients of a program, as programs: values are made again from loads, but for those that were kept.

Gradients of what is read at the row, of edges and of what all share come from a pass over the same rows;
those of the other ends from a pass over the transposed CSR. Both begin with the steps of the forward pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weft.compiler.programs.flags import with_flags
from weft.compiler.programs.program import Builder, Kind, Program, Result, Shape, Step

_TWO_OVER_ROOT_PI = 1.1283791670955126


@dataclass(frozen=True)
class Gradients:
    """The passes that give the gradients of some loads of a program.

    Both take the tensors of the forward pass and, after them, those named by `extra`, one row per row of the
    forward CSR: `grad` of the result; for an extreme instead `share`, the gradient divided by how many edges
    attain it, and its `value`; for a softmax `grad`, `level` (log Σ exp score, 0 where that is −inf) and
    `mean` (Σ out · grad over the width, less the gradient of the logarithm).
    `of_rows` gives those of the loads in `row_places`, in that order; `of_others`, which runs over the
    transposed CSR, those in `other_places`. A weight that is used twice stands there twice: its gradients add
    up. None where there is nothing to give. Values that were kept are the last tensors, one row per edge. The
    last result of `of_rows` is one tensor more for `of_others` where there are `flags`.
    """

    extra: tuple[str, ...]
    of_rows: Program | None
    row_places: tuple[int, ...]
    of_others: Program | None
    other_places: tuple[int, ...]
    flags: bool = False


_EXTRA: dict[str, tuple[str, ...]] = {
    "sum": ("grad",),
    "max": ("share", "value"),
    "min": ("share", "value"),
    "softmax": ("grad", "level", "mean"),
}


def gradients(
    program: Program,
    wanted: Sequence[bool],
    *,
    kept: Sequence[int] = (),
    flags: bool = False,
    joined: bool = False,
) -> Gradients:
    """Return the passes for the gradients of the wanted loads of a program with one result, per row.

    `kept` are values that forward stored; all others are made again. With `flags` conditions go from one pass
    to the other where that spares more than it costs. With `joined` the pass over other ends gives what is
    summed over all edges too, where there would be nothing else for the pass over rows.
    """
    (result,) = program.results
    made, adjoint = _swept(program, kept)
    found = [(place, each) for place, want in enumerate(wanted) if want for each in adjoint.results(place)]
    others = [pair for pair in found if program.loads[pair[0]].source == "other"]
    rows = [pair for pair in found if program.loads[pair[0]].source != "other"]
    if joined and others and all(each.kind in ("shared", "weight") for _, each in rows):
        rows, others = [], [*others, *rows]
    row_places, other_places = (tuple(place for place, _ in pairs) for pairs in (rows, others))
    of_rows, of_others = ([each for _, each in pairs] for pairs in (rows, others))
    first = made.program(of_rows) if rows else None
    second = made.program(of_others) if others else None
    both = with_flags(made, of_rows, of_others) if flags and rows and others else None
    first, second = both or (first, second)
    swapped = None if second is None else second.swapped
    return Gradients(_EXTRA[result.kind], first, row_places, swapped, other_places, both is not None)


def _swept(program: Program, kept: Sequence[int]) -> tuple[Builder, "Adjoint"]:
    """Return the steps of both ways, and the gradients of all values."""
    made = Builder()
    for load in program.loads:
        made.load(load.source, load.shape)
    (result,) = program.results
    extra = [made.load("row", shape) for shape in _extra_shapes(program, result)]
    stored = {value: made.load("edge", program.shapes[value]) for value in kept}
    numbers, steps = list(range(len(program.loads))), []
    for value, step in enumerate(program.steps, len(program.loads)):
        step = replace(step, args=tuple(numbers[each] for each in step.args))
        numbers.append(stored[value] if value in stored else made.repeat(step))
        steps.append((numbers[-1], step))
    adjoint = Adjoint(made, steps)
    _SEEDS[result.kind](adjoint, [numbers[each] for each in result.args], extra)
    adjoint.sweep()
    return made, adjoint


def _extra_shapes(program: Program, result: Result) -> list[Shape]:
    shape = program.shapes[result.args[-1]]
    per_head = (program.shapes[result.args[0]][0], 1)
    return [per_head if name in ("level", "mean") else shape for name in _EXTRA[result.kind]]


class Adjoint:
    """The gradients of values so far, while steps are walked from the last to the first."""

    def __init__(self, made: Builder, steps: Sequence[tuple[int, Step]]) -> None:
        self.made = made
        self.steps = steps
        """Those of the forward pass, with the numbers of their values."""
        self.of: dict[int, int] = {}
        self.products: dict[int, list[tuple[int, int]]] = {}
        """By weight, the values whose products over all edges are its gradient."""

    def add(self, value: int, gradient: int) -> None:
        """Add to the gradient of a value, summed where the value was the same along an axis."""
        (heads, width), (most_heads, most_width) = self.made.shape(value), self.made.shape(gradient)
        if width < most_width:
            gradient = self.made.sum_width(gradient)
        if heads < most_heads:
            gradient = self.made.sum_heads(gradient)
        known = self.of.get(value)
        self.of[value] = gradient if known is None else self.made.step("add", known, gradient)

    def sweep(self) -> None:
        """Walk back over the steps of the forward pass."""
        for number, step in reversed(self.steps):
            if number in self.of:
                self._back(step, number, self._whole(number))

    def _back(self, step: Step, number: int, gradient: int) -> None:
        if step.op in ("dot", "dot_t"):
            value, weight = step.args
            pair = (value, gradient) if step.op == "dot" else (gradient, value)
            self.products.setdefault(weight, []).append(pair)
            back = self.made.dot_t if step.op == "dot" else self.made.dot
            self.add(value, back(gradient, weight))
        elif step.op in ("sum_width", "sum_heads", "expand"):
            self.add(step.args[0], gradient)
        elif step.op in _RULES:
            _RULES[step.op](self, step.args, number, gradient)

    def results(self, load: int) -> list[Result]:
        """Return what gives the gradient of a load: nothing where none reaches it."""
        source = self.made.loads[load].source
        if source == "weight":
            return [Result("weight", pair) for pair in self.products.get(load, [])]
        if load not in self.of:
            return []
        kind: Kind = source if source in ("edge", "shared") else "sum"
        return [Result(kind, (self._whole(load),))]

    def _whole(self, value: int) -> int:
        """Return the gradient of a value in its own shape, also where it is the same along an axis."""
        return self.made.expand(self.of[value], self.made.shape(value))


Rule = Callable[[Adjoint, tuple[int, ...], int, int], None]


def _unary(derivative: Callable[[Builder, int, int], int]) -> Rule:
    """Return the rule of a step by its derivative, made of its argument and its value."""

    def rule(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
        made = adjoint.made
        adjoint.add(args[0], made.step("mul", gradient, derivative(made, args[0], number)))

    return rule


def _add(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    for each in args:
        adjoint.add(each, gradient)


def _sub(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    adjoint.add(args[0], gradient)
    adjoint.add(args[1], adjoint.made.step("neg", gradient))


def _mul(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    a, b = args
    adjoint.add(a, adjoint.made.step("mul", gradient, b))
    adjoint.add(b, adjoint.made.step("mul", gradient, a))


def _div(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    made, (a, b) = adjoint.made, args
    share = made.step("div", gradient, b)
    adjoint.add(a, share)
    adjoint.add(b, made.step("neg", made.step("mul", share, number)))


def _pow(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    made, (base, power) = adjoint.made, args
    less = made.step("sub", power, made.constant(1.0))
    slope = made.step("mul", power, made.step("pow", base, less))
    # A power of 0 has no slope, also at 0 where 0 · 0⁻¹ would be NaN.
    slope = made.step("where", power, slope, made.constant(0.0))
    adjoint.add(base, made.step("mul", gradient, slope))
    grown = made.step("mul", number, made.step("log", base))
    positive = made.step("gt", base, made.constant(0.0))
    adjoint.add(power, made.step("mul", gradient, made.step("where", positive, grown, made.constant(0.0))))


def _extreme_of_two(ahead: str) -> Rule:
    """Return the rule of `maximum` and `minimum`, which share the gradient of a tie as torch does."""

    def rule(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
        made, (a, b) = adjoint.made, args
        tie = made.step("mul", made.step("eq", a, b), made.constant(0.5))
        for one, two in ((a, b), (b, a)):
            share = made.step("add", made.step(ahead, one, two), tie)
            adjoint.add(one, made.step("mul", gradient, share))

    return rule


def _where(adjoint: Adjoint, args: tuple[int, ...], number: int, gradient: int) -> None:
    made, (mask, a, b) = adjoint.made, args
    zero = made.constant(0.0)
    adjoint.add(a, made.step("where", mask, gradient, zero))
    adjoint.add(b, made.step("where", mask, zero, gradient))


def _square(made: Builder, value: int) -> int:
    return made.step("mul", value, value)


def _less_than_one(made: Builder, value: int) -> int:
    return made.step("sub", made.constant(1.0), value)


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "maximum": _extreme_of_two("gt"),
    "minimum": _extreme_of_two("lt"),
    "where": _where,
    "neg": _unary(lambda made, x, y: made.constant(-1.0)),
    "abs": _unary(lambda made, x, y: made.step("sign", x)),
    "exp": _unary(lambda made, x, y: y),
    "expm1": _unary(lambda made, x, y: made.step("add", y, made.constant(1.0))),
    "log": _unary(lambda made, x, y: made.step("reciprocal", x)),
    "log1p": _unary(lambda made, x, y: made.step("reciprocal", made.step("add", x, made.constant(1.0)))),
    "sqrt": _unary(lambda made, x, y: made.step("div", made.constant(0.5), y)),
    "reciprocal": _unary(lambda made, x, y: made.step("neg", _square(made, y))),
    "sigmoid": _unary(lambda made, x, y: made.step("mul", y, _less_than_one(made, y))),
    "tanh": _unary(lambda made, x, y: _less_than_one(made, _square(made, y))),
    "relu": _unary(lambda made, x, y: made.step("gt", y, made.constant(0.0))),
    "sin": _unary(lambda made, x, y: made.step("cos", x)),
    "cos": _unary(lambda made, x, y: made.step("neg", made.step("sin", x))),
    "erf": _unary(
        lambda made, x, y: made.step(
            "mul", made.constant(_TWO_OVER_ROOT_PI), made.step("exp", made.step("neg", _square(made, x)))
        )
    ),
}
"""By step; comparisons, signs and constants have no gradient."""


def _seed_sum(adjoint: Adjoint, values: list[int], extra: list[int]) -> None:
    adjoint.add(values[0], extra[0])


def _seed_extreme(adjoint: Adjoint, values: list[int], extra: list[int]) -> None:
    made, (share, value) = adjoint.made, extra
    adjoint.add(values[0], made.step("where", made.step("same", values[0], value), share, made.constant(0.0)))


def _seed_softmax(adjoint: Adjoint, values: list[int], extra: list[int]) -> None:
    made, (score, value), (grad, level, mean) = adjoint.made, values, extra
    alpha = made.step("exp", made.step("sub", score, level))
    along = made.sum_width(made.step("mul", grad, value))
    along = along if made.shape(along) == made.shape(score) else made.sum_heads(along)  # one score for all
    adjoint.add(value, made.step("mul", alpha, grad))
    adjoint.add(score, made.step("mul", alpha, made.step("sub", along, mean)))


_SEEDS: dict[str, Callable[[Adjoint, list[int], list[int]], None]] = {
    "sum": _seed_sum,
    "max": _seed_extreme,
    "min": _seed_extreme,
    "softmax": _seed_softmax,
}
