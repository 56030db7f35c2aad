"""Steps that the native core takes together, so that nothing wide lies between them in a tile.

dot_width            of (a, b): the sum over the width of a · b
weighted             result of (weight [heads, 1], value): Σ value · weight over the edges of a row
mixed                the same, the heads added up too
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from weft.compiler.programs.program import Builder, Load, Program, Result, Step

WIDE = 16
"""Numbers of the widest vector: below, a step by itself is as good."""


def fused(program: Program) -> Program:
    """Return a program of the same results and loads, with steps and results that the core alone has."""
    found = _Fused(program)
    steps = [found.step(step) for step in program.steps]
    results = [found.result(each) for each in program.results]
    return _needed(program.loads, steps, results)


class _Fused:
    """Looks for what goes together: a value between two steps that nothing else takes."""

    def __init__(self, program: Program) -> None:
        self.program, self.shapes, self.once = program, program.shapes, once(program)
        taken = [each.args for each in program.steps] + [each.args for each in program.results]
        self.uses = Counter(chain.from_iterable(taken))

    def step(self, step: Step) -> Step:
        factors = self._alone(step.args[0], "mul") if step.op == "sum_width" else None
        if factors is None:
            return step
        width = self.shapes[step.args[0]][1]
        whole = width >= WIDE and all(self.shapes[each][1] == width for each in factors)
        return Step("dot_width", factors, step.shape) if whole else step

    def result(self, result: Result) -> Result:
        if result.kind != "sum":
            return result
        (value,) = result.args
        mixed = self._alone(value, "sum_heads")
        inner = value if mixed is None else mixed[0]
        factors = self._alone(inner, "mul")
        for weight, rows in () if factors is None else (factors, factors[::-1]):
            if self._weighs(weight, rows, inner, mixed=mixed is not None):
                return Result("weighted" if mixed is None else "mixed", (weight, rows))
        return result

    def _weighs(self, weight: int, rows: int, product: int, *, mixed: bool) -> bool:
        heads, width = self.shapes[rows]
        if self.once[weight] or self.once[rows] or self.shapes[weight][1] != 1 or width < WIDE:
            return False
        return self.shapes[weight][0] == heads if mixed else self.shapes[product][1] == width

    def _alone(self, value: int, op: str) -> tuple[int, ...] | None:
        """Return the arguments of a step of this kind whose value is taken once."""
        first = len(self.program.loads)
        step = self.program.steps[value - first] if value >= first else None
        return step.args if step is not None and step.op == op and self.uses[value] == 1 else None


def once(program: Program) -> list[bool]:
    """Return of every value whether it is the same for all edges."""
    found = [load.source in ("shared", "weight") for load in program.loads]
    for step in program.steps:
        found.append(all(found[each] for each in step.args))
    return found


def sparse(program: Program) -> set[int]:
    """Return the values that may be mostly 0: what a condition leaves 0 otherwise, and its multiples."""
    found: set[int] = set()
    first = len(program.loads)
    zero = {n for n, step in enumerate(program.steps, first) if step.op == "constant" and step.number == 0.0}
    for number, step in enumerate(program.steps, first):
        rules: dict[str, Callable[[Sequence[int]], bool]] = {
            "where": lambda args: not zero.isdisjoint(args[1:]),
            "mul": lambda args: not found.isdisjoint(args),
            "neg": lambda args: args[0] in found,
        }
        if step.op in rules and rules[step.op](step.args):
            found.add(number)
    return found


def _needed(loads: Sequence[Load], steps: Sequence[Step], results: Sequence[Result]) -> Program:
    """Return the program without steps that no result needs any more."""
    made = Builder()
    numbers = [made.load(load.source, load.shape) for load in loads]
    for step in steps:
        numbers.append(made.repeat(replace(step, args=tuple(numbers[each] for each in step.args))))
    return made.program([Result(each.kind, tuple(numbers[n] for n in each.args)) for each in results])
