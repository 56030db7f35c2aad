"""Programs that a kernel was made for: sums of weighted rows, and attention by the scores that layers have.

Such a program has few steps; it is compared with the form of each kernel, and run by the first that fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from weft import kernels
from weft.compiler.programs.program import Load, Program, Step
from weft.kernels import Transposed


@dataclass(frozen=True)
class Matched:
    """A kernel in the place of a program."""

    name: str
    run: Callable[[Tensor, Tensor, Transposed | None, Sequence[Tensor]], Tensor]
    """Takes CSR, its transpose (None: no backward) and the program's tensors; gives [rows, heads, width]."""


@lru_cache(maxsize=1024)
def match(program: Program) -> Matched | None:
    """Return the kernel that does what a program does, gradients included; None: there is none."""
    form = _Form(program)
    kind = program.results[0].kind
    return _attention(form) if kind == "softmax" else _weighted_rows(form, kind)


class _Form:
    """A program's values, to be compared with what a kernel expects."""

    def __init__(self, program: Program) -> None:
        self.loads, self.steps, self.args = program.loads, program.steps, program.results[0].args
        self.shapes = program.shapes

    def at(self, value: int) -> Load | Step:
        first = len(self.loads)
        return self.loads[value] if value < first else self.steps[value - first]

    def is_load(self, value: int, source: str) -> bool:
        each = self.at(value)
        return isinstance(each, Load) and each.source == source

    def step(self, value: int, op: str) -> tuple[int, ...] | None:
        """Return the arguments of a step, if a value is one of this kind."""
        each = self.at(value)
        return each.args if isinstance(each, Step) and each.op == op else None

    def number(self, value: int) -> float | None:
        each = self.at(value)
        return each.number if isinstance(each, Step) and each.op == "constant" else None

    def leaky(self, value: int) -> tuple[int, float] | None:
        """Return (x, slope) of where(x > 0, x, slope · x)."""
        found = self.step(value, "where")
        if found is None:
            return None
        mask, x, low = found
        above, scaled = self.step(mask, "gt"), self.step(low, "mul")
        if above is None or scaled is None or above[0] != x or self.number(above[1]) != 0.0 or scaled[0] != x:
            return None
        slope = self.number(scaled[1])
        return None if slope is None else (x, slope)

    def ends(self, value: int) -> tuple[int, int, int | None] | None:
        """Return the loads of (other, row, edge or None) whose sum a value is, all of its shape."""
        terms = self._terms(value)
        if any(self.shapes[each] != self.shapes[value] for each in terms):
            return None
        by_source = {self.at(each).source: each for each in terms if isinstance(self.at(each), Load)}  # type: ignore[union-attr]
        if len(by_source) != len(terms) or set(by_source) - {"other", "row", "edge"}:
            return None
        if "other" not in by_source or "row" not in by_source:
            return None
        return by_source["other"], by_source["row"], by_source.get("edge")

    def _terms(self, value: int) -> list[int]:
        found = self.step(value, "add")
        return [value] if found is None else [each for arg in found for each in self._terms(arg)]


def _weighted_rows(form: _Form, kind: str) -> Matched | None:
    (value,) = form.args
    if form.is_load(value, "other"):
        return Matched("spmm", _summed(value, None, kind))
    factors = form.step(value, "mul")
    if factors is None or kind != "sum":
        return None
    for rows, weight in (factors, factors[::-1]):
        if not form.is_load(rows, "other") or not form.is_load(weight, "edge"):
            continue
        if form.shapes[rows] == form.shapes[value] and form.shapes[weight] in (
            (1, 1),
            (form.shapes[rows][0], 1),
        ):
            return Matched("spmm", _summed(rows, weight, kind))
    return None


def _summed(rows: int, weight: int | None, kind: str) -> Callable[..., Tensor]:
    def run(
        indptr: Tensor, other: Tensor, transposed: Transposed | None, tensors: Sequence[Tensor]
    ) -> Tensor:
        x = tensors[rows]
        shape, scale = x.shape[1:], None if weight is None else tensors[weight].squeeze(2)
        if scale is None or scale.shape[1] == 1:
            x, scale = x.flatten(1), None if scale is None else scale.squeeze(1)
        made = kernels.spmm(indptr, other, x, scale, kind, transposed=transposed)
        return made.reshape(-1, *shape)

    return run


def _attention(form: _Form) -> Matched | None:
    score, value = form.args
    if not form.is_load(value, "other") or form.shapes[score][0] != form.shapes[value][0]:
        return None
    return _additive(form, score, value) or _gatv2(form, score, value) or _dot(form, score, value)


def _additive(form: _Form, score: int, value: int) -> Matched | None:
    bent = form.leaky(score)
    ends = None if bent is None else form.ends(bent[0])
    if bent is None or ends is None:
        return None
    source, row, edge = ends
    slope = bent[1]

    def run(
        indptr: Tensor, other: Tensor, transposed: Transposed | None, tensors: Sequence[Tensor]
    ) -> Tensor:
        return kernels.attention(
            indptr,
            other,
            tensors[source].squeeze(2),
            tensors[row].squeeze(2),
            tensors[value],
            slope,
            edge=None if edge is None else tensors[edge].squeeze(2),
            transposed=transposed,
        )

    return Matched("attention", run)


def _gatv2(form: _Form, score: int, value: int) -> Matched | None:
    summed = form.step(score, "sum_width")
    factors = None if summed is None else form.step(summed[0], "mul")
    for bent_at, shared in () if factors is None else (factors, factors[::-1]):
        bent = form.leaky(bent_at)
        ends = None if bent is None else form.ends(bent[0])
        whole = form.shapes[bent_at] == form.shapes[value] == form.shapes[shared]
        if bent is not None and ends is not None and whole and form.is_load(shared, "shared"):
            return Matched("attention_gatv2", _gatv2_run(ends, shared, value, bent[1]))
    return None


def _gatv2_run(
    ends: tuple[int, int, int | None], shared: int, value: int, slope: float
) -> Callable[..., Tensor]:
    source, row, edge = ends

    def run(
        indptr: Tensor, other: Tensor, transposed: Transposed | None, tensors: Sequence[Tensor]
    ) -> Tensor:
        return kernels.attention_gatv2(
            indptr,
            other,
            tensors[source],
            tensors[row],
            tensors[shared],
            tensors[value],
            slope,
            edge=None if edge is None else tensors[edge],
            transposed=transposed,
        )

    return run


def _dot(form: _Form, score: int, value: int) -> Matched | None:
    scale, inner = 1.0, score
    for op in ("mul", "div"):
        found = form.step(score, op)
        number = None if found is None else form.number(found[1])
        if found is not None and number:
            scale, inner = number if op == "mul" else 1.0 / number, found[0]
    summed = form.step(inner, "sum_width")
    factors = None if summed is None else form.step(summed[0], "mul")
    for source, row in () if factors is None else (factors, factors[::-1]):
        whole = form.shapes[source] == form.shapes[row] == form.shapes[value]
        if whole and form.is_load(source, "other") and form.is_load(row, "row"):
            return Matched("attention_dot", _dot_run(source, row, value, scale))
    return None


def _dot_run(source: int, row: int, value: int, scale: float) -> Callable[..., Tensor]:
    def run(
        indptr: Tensor, other: Tensor, transposed: Transposed | None, tensors: Sequence[Tensor]
    ) -> Tensor:
        return kernels.attention_dot(
            indptr, other, tensors[source], tensors[row], tensors[value], scale, transposed=transposed
        )

    return run
