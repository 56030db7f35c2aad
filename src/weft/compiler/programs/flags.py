"""Conditions on edges that one gradient pass keeps for the other, a bit each.

The gradient of an extreme goes to the edges that attain it, that of a relu to those where it is positive. The
pass over rows makes these conditions anyway. Kept, they spare the pass over other ends the values that they
are made of: the rows to be gathered for them, and products.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.compiler.programs.program import COMPARISONS, Builder, Load, Program, Result, Shape, Step

_MOST = 8
"""Bits of what is kept for a number."""
_NUMBER = 4
"""Bytes of a number that is gathered."""


def with_flags(
    made: Builder, rows: Sequence[Result], others: Sequence[Result]
) -> tuple[Program, Program] | None:
    """Return both passes of a builder, the first with one result more, which the second loads last.

    None where that would move more bytes than it spares.
    """
    conditions = _conditions(made, others)
    if not conditions:
        return None
    plain, shape = made.program(others), made.shape(conditions[0])
    packed = _packed(made, conditions)
    first = made.program([*rows, Result("flags", (packed,))])
    bits = _bits(made, made.load("edge", shape), len(conditions))
    second = made.program(_replaced(made, others, dict(zip(conditions, bits))))
    spared = _gathered(plain.loads, plain) - _gathered(plain.loads, second)
    # one byte a value, written once and read once
    return (first, second) if spared > 2 * shape[0] * shape[1] else None


def _conditions(made: Builder, results: Sequence[Result]) -> list[int]:
    """Return the widest comparisons that results need and that read the row; some of one shape."""
    found: dict[Shape, list[int]] = {}
    for number in sorted(made.needed(results)):
        each = made.at(number)
        if isinstance(each, Step) and each.op in COMPARISONS and "row" in _sources(made, number):
            found.setdefault(each.shape, []).append(number)
    widest = max(found, key=lambda shape: shape[0] * shape[1], default=None)
    return [] if widest is None else found[widest][:_MOST]


def _sources(made: Builder, number: int) -> set[str]:
    needed = made.needed([Result("edge", (number,))])
    return {each.source for each in map(made.at, needed) if isinstance(each, Load)}


def _packed(made: Builder, conditions: Sequence[int]) -> int:
    whole = conditions[0]
    for place, each in enumerate(conditions[1:], 1):
        whole = made.step("add", whole, made.step("mul", each, made.constant(2.0**place)))
    return whole


def _bits(made: Builder, packed: int, count: int) -> list[int]:
    """Return the conditions that were packed, the last one first out."""
    found, rest = [], packed
    for place in range(count - 1, 0, -1):
        power = made.constant(2.0**place)
        found.append(made.step("ge", rest, power))
        rest = made.step("sub", rest, made.step("mul", found[-1], power))
    return [made.step("ge", rest, made.constant(1.0)), *reversed(found)]


def _replaced(made: Builder, results: Sequence[Result], instead: dict[int, int]) -> list[Result]:
    """Return results made of other values in the place of some."""
    for number in sorted(made.needed(results)):
        each = made.at(number)
        if isinstance(each, Step) and number not in instead:
            instead[number] = made.repeat(replace(each, args=tuple(instead.get(n, n) for n in each.args)))
    return [Result(each.kind, tuple(instead.get(n, n) for n in each.args)) for each in results]


def _gathered(loads: Sequence[Load], program: Program) -> int:
    """Return the bytes of some loads that a pass over other ends reads for an edge."""
    used = {each for step in program.steps for each in step.args}
    used |= {each for result in program.results for each in result.args}
    return sum(
        load.shape[0] * load.shape[1] * _NUMBER
        for number, load in enumerate(loads)
        if number in used and load.source in ("row", "edge")
    )
