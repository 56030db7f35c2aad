"""Programs that a kernel was made for: the same results by it, and no kernel for what only looks alike."""

import pytest
import torch
from tests.support.programs import edges_of, tensors_of, transposed

from weft.compiler.programs import reference
from weft.compiler.programs.match import match
from weft.compiler.programs.program import Builder, Program, Result, Shape
from weft.kernels import Transposed

Made = tuple[Builder, tuple[int, ...]]


def weighted(rows: Shape, weight: Shape, *, source: str = "edge") -> Made:
    made = Builder()
    x = made.load("other", rows)
    return made, (made.step("mul", x, made.load(source, weight)),)  # type: ignore[arg-type]


def leaky(made: Builder, x: int, *, above: float = 0.0, slope: float = 0.2) -> int:
    mask = made.step("gt", x, made.constant(above))
    return made.step("where", mask, x, made.step("mul", x, made.constant(slope)))


def additive(
    score: Shape, value: Shape, *, ends: tuple[str, ...] = ("other", "row"), above: float = 0.0
) -> Made:
    made = Builder()
    first, *others = (made.load(end, score) for end in ends)  # type: ignore[arg-type]
    for each in others:
        first = made.step("add", first, each)
    return made, (leaky(made, first, above=above), made.load("other", value))


def bent_to_another() -> Made:
    """Return scores that below 0 are a fifth of another sum."""
    made = Builder()
    a, b, c = made.load("other", (2, 1)), made.load("row", (2, 1)), made.load("row", (2, 1))
    x, y = made.step("add", a, b), made.step("add", a, c)
    low = made.step("mul", y, made.constant(0.2))
    score = made.step("where", made.step("gt", x, made.constant(0.0)), x, low)
    return made, (score, made.load("other", (2, 3)))


def gatv2(heads: int, shared: Shape, *, source: str = "shared") -> Made:
    made = Builder()
    a, b = made.load("other", (heads, 3)), made.load("row", (heads, 3))
    bent = leaky(made, made.step("add", a, b))
    factor = made.load(source, shared)  # type: ignore[arg-type]
    return made, (made.sum_width(made.step("mul", bent, factor)), a)


def dot(query: Shape, value: Shape, *, row: str = "row") -> Made:
    made = Builder()
    key, asked, rows = made.load("other", (2, 3)), made.load(row, query), made.load("other", value)  # type: ignore[arg-type]
    score = made.sum_width(made.step("mul", key, asked))
    return made, (made.step("mul", score, made.constant(0.5)), rows)


def program_of(given: Made, kind: str) -> Program:
    return given[0].program([Result(kind, given[1])])  # type: ignore[arg-type]


KNOWN = {
    "one weight": (weighted((2, 3), (1, 1)), "sum", "spmm"),
    "one weight per head": (weighted((2, 3), (2, 1)), "sum", "spmm"),
    "additive": (additive((2, 1), (2, 3)), "softmax", "attention"),
    "gatv2": (gatv2(2, (2, 3)), "softmax", "attention_gatv2"),
    "dot": (dot((2, 3), (2, 3)), "softmax", "attention_dot"),
}
OTHERS = {
    "one weight per column": (weighted((2, 3), (1, 3)), "sum"),
    "a weight of heads that the rows have not": (weighted((1, 3), (2, 1)), "sum"),
    "a weight of the row": (weighted((2, 3), (2, 1), source="row"), "sum"),
    "the largest of weighted rows": (weighted((2, 3), (2, 1)), "max"),
    "both terms of the source": (additive((2, 1), (2, 3), ends=("other", "other")), "softmax"),
    "two terms of the source": (additive((2, 1), (2, 3), ends=("other", "row", "other")), "softmax"),
    "one score for all heads": (additive((1, 1), (2, 3)), "softmax"),
    "bent elsewhere than at 0": (additive((2, 1), (2, 3), above=0.5), "softmax"),
    "bent to another sum": (bent_to_another(), "softmax"),
    "one vector for all heads": (gatv2(2, (1, 3)), "softmax"),
    "a vector of each edge": (gatv2(2, (2, 3), source="edge"), "softmax"),
    "one query for all heads": (dot((1, 3), (2, 3)), "softmax"),
    "a query of the source": (dot((2, 3), (2, 3), row="other"), "softmax"),
    "values of another width": (dot((2, 3), (2, 5)), "softmax"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_kernel_does_what_the_program_does(name: str) -> None:
    given, kind, kernel = KNOWN[name]
    program, edges = program_of(given, kind), edges_of(7)
    found = match(program)
    assert found is not None
    assert found.name == kernel
    tensors = [each.requires_grad_() for each in tensors_of(program, edges, 1)]
    back = transposed(edges)
    assert back.numbers is not None
    out = found.run(edges.indptr, edges.other, Transposed(back.indptr, back.other, back.numbers), tensors)
    want = reference.run(program, edges, tensors)[0]
    torch.testing.assert_close(out, want, rtol=1e-9, atol=1e-9)
    grad = torch.randn(want.shape, dtype=want.dtype, generator=torch.Generator().manual_seed(3))
    for ours, theirs in zip(
        torch.autograd.grad(out, tensors, grad), torch.autograd.grad(want, tensors, grad)
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_alike_has_no_kernel(name: str) -> None:
    given, kind = OTHERS[name]
    assert match(program_of(given, kind)) is None
