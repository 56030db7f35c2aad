"""Steps that the native core takes together, and values that are mostly 0: the same results and bits."""

import math

import pytest
import torch
from tests.support.programs import edges_of, tensors_of, transposed
from torch import Tensor

from weft import kernels
from weft.compiler.native import backend as cpu
from weft.compiler.native import layout
from weft.compiler.native.fuse import fused, sparse
from weft.compiler.programs import reference
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Builder, Edges, Program, Result
from weft.compiler.programs.run import extra_tensors, reduce_edges

pytestmark = pytest.mark.skipif(not kernels.native.available(), reason="the native core is not built")


def weighted(heads: int, of_rows: int, width: int, *, mixed: bool = False) -> Program:
    made = Builder()
    rows, weight = made.load("other", (of_rows, width)), made.step("tanh", made.load("edge", (heads, 1)))
    value = made.step("mul", rows, weight)
    return made.program([Result("sum", (made.sum_heads(value) if mixed else value,))])


def dotted(heads: int, width: int) -> Program:
    made = Builder()
    a, b = made.load("row", (heads, width)), made.load("other", (1, width))
    return made.program([Result("edge", (made.sum_width(made.step("mul", a, b)),))])


def unfused(monkeypatch: pytest.MonkeyPatch, program: Program, edges: Edges, tensors: list[Tensor]) -> Tensor:
    """Return what the core makes step by step, of all numbers."""
    with monkeypatch.context() as at:
        at.setattr(layout, "fused", lambda given: given)
        at.setattr(layout, "sparse", lambda given: set())
        cpu._coded.cache_clear()
        (out,) = cpu.run(program, edges, tensors)
    cpu._coded.cache_clear()
    return out


@pytest.mark.parametrize("width", [16, 21, 70, 130])
@pytest.mark.parametrize(("heads", "of_rows"), [(1, 1), (1, 3), (3, 1), (6, 1), (3, 3)])
def test_weighted_rows_are_summed_as_they_are_read(heads: int, of_rows: int, width: int) -> None:
    edges = edges_of(width + heads, num_edges=300)
    for mixed in (False, True) if heads == of_rows > 1 else (False,):
        program = weighted(heads, of_rows, width, mixed=mixed)
        assert [each.kind for each in fused(program).results] == ["mixed" if mixed else "weighted"]
        for dtype, near in ((torch.float32, 1e-4), (torch.float64, 1e-12)):
            tensors = tensors_of(program, edges, width, dtype)
            (expected,) = reference.run(program, edges, tensors)
            torch.testing.assert_close(cpu.run(program, edges, tensors)[0], expected, rtol=near, atol=near)


def test_the_parts_of_a_hub_are_merged() -> None:
    program = weighted(3, 1, 20)
    indptr = torch.tensor([0, 9000, 9000, 9003])
    edges = Edges(indptr, torch.randint(0, 5, (9003,), dtype=torch.int32), 5)
    tensors = tensors_of(program, edges, 1)
    torch.testing.assert_close(cpu.run(program, edges, tensors), reference.run(program, edges, tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [16, 37, 64])
def test_a_product_that_is_summed_at_once_has_the_bits_of_both_steps(
    width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, edges = dotted(3, width), edges_of(width + 3, num_edges=301)
    assert [step.op for step in fused(program).steps] == ["dot_width"]
    tensors = tensors_of(program, edges, 2, dtype)
    assert torch.equal(cpu.run(program, edges, tensors)[0], unfused(monkeypatch, program, edges, tensors))


def test_what_is_taken_twice_or_is_the_same_for_all_edges_stays_a_step() -> None:
    made = Builder()
    rows, weight = made.load("other", (1, 32)), made.load("edge", (1, 1))
    product = made.step("mul", rows, weight)
    twice = made.program([Result("sum", (product,)), Result("edge", (made.sum_width(product),))])
    assert fused(twice) == twice
    made = Builder()
    alike = made.step("mul", made.load("shared", (1, 32)), made.load("edge", (1, 1)))
    program = made.program([Result("sum", (alike,))])
    assert fused(program) == program


def extreme_of_products(width: int) -> Program:
    made = Builder()
    a, b, matrix = (
        made.load("row", (1, width)),
        made.load("other", (1, width)),
        made.load("weight", (width, width)),
    )
    return made.program([Result("max", (made.dot_t(made.step("relu", made.step("add", a, b)), matrix),))])


@pytest.mark.parametrize("width", [5, 33, 70])
@pytest.mark.parametrize("spoiled", [False, True])
def test_the_zeros_of_an_extreme_s_gradient_are_passed_over(
    width: int, spoiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, edges = extreme_of_products(width), edges_of(7, num_edges=300)
    tensors = tensors_of(program, edges, 3, torch.float32)
    out, ties = cpu.run(program, edges, tensors)
    if spoiled:  # 0 times what is not finite is no 0
        tensors[2][0, 0] = math.inf
        tensors[0][4] = math.inf
    passes = gradients(program, (True,) * 3)
    assert passes.of_rows is not None
    assert sparse(passes.of_rows)
    given = [*tensors, *extra_tensors("max", out, [ties], torch.randn(out.shape), None)]
    for result in passes.of_rows.results:
        one = Program(passes.of_rows.loads, passes.of_rows.steps, (result,))
        (found,) = cpu.run(one, edges, given)
        expected = unfused(monkeypatch, one, edges, given)
        near = 1e-5 if result.kind == "weight" else 0.0
        torch.testing.assert_close(found, expected, rtol=near, atol=near, equal_nan=True)


def test_conditions_go_from_one_pass_to_the_other_on_the_core() -> None:
    program, edges = extreme_of_products(20), edges_of(11, num_edges=200)
    back = transposed(edges)
    tensors = [each.requires_grad_() for each in tensors_of(program, edges, 4)]
    passes = gradients(program, (True,) * 3, flags=True)
    assert passes.flags
    out, _ = reduce_edges(program, edges, lambda: back, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype)
    expected = torch.autograd.grad(reference.run(program, edges, tensors)[0], tensors, grad)
    for have, want in zip(torch.autograd.grad(out, tensors, grad), expected):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


def test_one_pass_gives_all_gradients_where_none_is_of_rows() -> None:
    made = Builder()
    rows, edge, centre = made.load("other", (1, 20)), made.load("edge", (1, 2)), made.load("shared", (3, 2))
    away = made.step("sub", edge, centre)
    weight = made.step("exp", made.step("neg", made.sum_width(made.step("mul", away, away))))
    program = made.program([Result("sum", (made.step("mul", rows, weight),))])
    wanted = (True, False, True)
    assert gradients(program, wanted).of_rows is not None
    passes = gradients(program, wanted, joined=True)
    assert (passes.of_rows, passes.other_places) == (None, (0, 2))
    assert gradients(program, (True, True, True), joined=True).of_rows is not None, (
        "one row per edge: in order"
    )
    edges = edges_of(5, num_edges=300)
    back = transposed(edges)
    tensors = tensors_of(program, edges, 1)
    leaves = [tensors[0].requires_grad_(), tensors[1], tensors[2].requires_grad_()]
    out, _ = reduce_edges(program, edges, lambda: back, leaves)
    grad, taken = torch.randn(out.shape, dtype=out.dtype), [leaves[0], leaves[2]]
    expected = torch.autograd.grad(reference.run(program, edges, leaves)[0], taken, grad)
    for have, want in zip(torch.autograd.grad(out, taken, grad), expected):
        torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)


def test_one_weight_of_all_heads_that_are_added_up() -> None:
    program, edges = weighted(1, 3, 20, mixed=True), edges_of(4, num_edges=300)
    tensors = tensors_of(program, edges, 2)
    torch.testing.assert_close(cpu.run(program, edges, tensors), reference.run(program, edges, tensors))
