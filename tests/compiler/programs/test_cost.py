"""Counted bytes and operations, against sums made by hand."""

import torch

from weft.compiler.programs.cost import EdgeCounts, Work, operations_again, program_cost, total
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Builder, Program, Result

SIZES = EdgeCounts(rows=10, others=20, edges=100)
FLOAT = torch.float32
INDICES = 100 * 4 + 11 * 8


def mapped_sum() -> Program:
    """Return Σ relu(a[u] + b[v] c) W: the product b c is one of rows, all else of edges."""
    made = Builder()
    a, b, c = made.load("other", (1, 8)), made.load("row", (1, 8)), made.load("shared", (1, 1))
    weight = made.load("weight", (8, 4))
    inner = made.step("relu", made.step("add", a, made.step("mul", b, c)))
    return made.program([Result("sum", (made.dot(inner, weight),))])


def test_rows_of_the_other_end_are_read_for_every_edge_and_own_rows_once() -> None:
    cost = program_cost(mapped_sum(), SIZES, FLOAT)
    assert cost.read == INDICES + 4 * (100 * 8 + 10 * 8 + 1 + 8 * 4)
    assert cost.written == 4 * 10 * 4
    assert cost.operations == 10 * 8 + 100 * (8 + 8 + 2 * 8 * 4 + 4)


def test_what_no_result_needs_is_not_read() -> None:
    made = Builder()
    used, _ = made.load("other", (2, 3)), made.load("edge", (2, 3))
    cost = program_cost(made.program([Result("max", (used,))]), SIZES, torch.float64)
    assert cost == Work(INDICES + 8 * 100 * 6, 10 * 6 * (8 + 4), 2 * 100 * 6)


def test_backward_counts_what_it_makes_again() -> None:
    program = mapped_sum()
    passes = gradients(program, (True, False, False, False))
    assert passes.of_others is not None
    # Over the transposed CSR b c is a product for each edge; the forward map is not needed.
    assert operations_again(passes.of_others, program, SIZES.swapped) == 100 * (8 + 8 + 8)


def test_costs_add_up() -> None:
    assert total([Work(1, 2, 3), Work(10, 20, 30)]) == Work(11, 22, 33)
    assert SIZES.swapped == EdgeCounts(20, 10, 100)
