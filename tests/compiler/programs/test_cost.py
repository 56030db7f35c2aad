"""Counted bytes and operations, against sums made by hand."""

import torch
from tests.support.messages import forms_of
from torch import Tensor

from weft.compiler.compile import compile_message
from weft.compiler.graphs import name_of
from weft.compiler.programs.cost import EdgeCounts, Work, operations_again, operator_cost, program_cost, total
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


def test_gradients_of_what_all_edges_share_are_an_operation_for_each_number_of_an_edge() -> None:
    made = Builder()
    a, b = made.load("edge", (2, 8)), made.load("edge", (2, 4))
    cost = program_cost(made.program([Result("weight", (a, b)), Result("shared", (a,))]), SIZES, FLOAT)
    assert cost.read == INDICES + 4 * 100 * 2 * (8 + 4)
    assert cost.written == 4 * (8 * 4 + 2 * 8)
    assert cost.operations == 100 * (2 * 2 * 8 * 4 + 2 * 8)


def test_an_attention_by_hand() -> None:
    """Scores a[u] + b[v] of 2 heads bent, which weigh rows x[u] of 2 x 8, forward and backward."""
    made = Builder()
    a, b, x = made.load("other", (2, 1)), made.load("row", (2, 1)), made.load("other", (2, 8))
    total, slope = made.step("add", a, b), made.constant(0.2)
    above = made.step("gt", total, made.constant(0.0))
    score = made.step("where", above, total, made.step("mul", total, slope))
    cost = program_cost(made.program([Result("softmax", (score, x))]), SIZES, FLOAT)
    # An edge reads a score and a row of its source; a row its score once, and writes a logarithm beside.
    assert cost.read == INDICES + 4 * (100 * (2 + 16) + 10 * 2)
    assert cost.written == 4 * 10 * (16 + 2)
    assert cost.operations == 100 * (4 * 2 + 3 * 2 + 2 * 16)


def test_an_operator_of_torch_computes_what_it_takes_or_makes() -> None:
    def message(u: Tensor) -> Tensor:
        return u.tanh().sum(-1, keepdim=True) @ torch.ones(1, 5)

    made = compile_message(message, forms_of(src=[torch.ones(3, 8)]), "max")
    nodes = [node for node in made.graph.nodes if node.op == "call_function"]
    found = {name_of(node): operator_cost(node, lambda node: 20) for node in nodes}
    assert found["tanh"] == Work(4 * 20 * 8, 4 * 20 * 8, 20 * 8)
    assert found["sum"] == Work(4 * 20 * 8, 4 * 20, 20 * 8)
    assert found["mm"].operations == 2 * 20 * 5
