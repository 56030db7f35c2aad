"""Gradient programs against autograd of the reference, in float64, on odd graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.programs import HEADS, WIDTH, edges_of, random_program, tensors_of, transposed

from weft.compiler.programs import reference
from weft.compiler.programs.gradient import Gradients, gradients
from weft.compiler.programs.program import Builder, Program, Result
from weft.compiler.programs.run import extra_tensors, reduce_edges


def assert_like_autograd(program: Program, kind: str, seed: int, *, flags: bool) -> Gradients:
    """Hold gradient programs to autograd of the reference; return them."""
    edges = edges_of(seed)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, seed)]
    out, *beside = reference.run(program, edges, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad(out, tensors, grad, allow_unused=True)
    passes = gradients(program, (True,) * len(tensors), flags=flags)
    given_tensors = [t.detach() for t in tensors]
    extra = extra_tensors(kind, out.detach(), [b.detach() for b in beside], grad, None)
    loaded = [*given_tensors, *extra]
    found: dict[int, torch.Tensor] = {}
    for made, places, over in (
        (passes.of_rows, passes.row_places, edges),
        (passes.of_others, passes.other_places, transposed(edges)),
    ):
        results = [] if made is None else reference.run(made, over, loaded)
        loaded += results[len(places) :]  # the flags, of the first pass for the second
        for place, each in zip(places, results):
            found[place] = found.get(place, 0) + each
    for place, want in enumerate(expected):
        have = found.get(place, torch.zeros_like(tensors[place]))
        want = torch.zeros_like(tensors[place]) if want is None else want
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
    return passes


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "min", "softmax"]), st.booleans())
def test_gradient_programs_equal_autograd(seed: int, kind: str, flags: bool) -> None:
    assert_like_autograd(random_program(seed, kind), kind, seed, flags=flags)


def convolution(kind: str) -> Program:
    made = Builder()
    near, far, weight = made.load("row", (1, 8)), made.load("other", (1, 8)), made.load("weight", (8, 8))
    return made.program([Result(kind, (made.dot_t(made.step("relu", made.step("add", near, far)), weight),))])  # type: ignore[arg-type]


def test_flags_spare_the_second_pass_rows_and_products() -> None:
    plain, kept = (gradients(convolution("max"), (True,) * 3, flags=each) for each in (False, True))
    assert kept.flags
    assert plain.of_others is not None
    assert kept.of_others is not None
    assert kept.of_rows is not None
    assert [step.op for step in plain.of_others.steps].count("dot_t") == 1
    assert "dot_t" not in [step.op for step in kept.of_others.steps]
    used = {each for step in kept.of_others.steps for each in step.args}
    # of the other ends the share of the gradient alone, and the flags of the edge
    assert [kept.of_others.loads[each].source for each in sorted(used) if each < 6] == [
        "weight",
        "other",
        "edge",
    ]
    assert kept.of_rows.results[-1].kind == "flags"


def test_more_conditions_than_a_byte_has_bits_are_not_lost() -> None:
    made = Builder()
    near, far, total = made.load("row", (1, 8)), made.load("other", (1, 8)), made.constant(0.0)
    for place in range(12):  # the same conditions at other heights
        apart = made.step("sub", made.step("add", near, far), made.constant(place / 4 - 1.5))
        total = made.step("add", total, made.step("relu", apart))
    assert_like_autograd(made.program([Result("sum", (total,))]), "sum", 7, flags=False)
    assert assert_like_autograd(made.program([Result("max", (total,))]), "max", 7, flags=True).flags


def test_flags_that_spare_nothing_are_not_kept() -> None:
    made = Builder()
    both = made.step("add", made.load("row", (1, 8)), made.load("other", (1, 8)))
    program = made.program(
        [Result("sum", (made.step("mul", made.step("sigmoid", both), made.step("relu", both)),))]
    )
    assert not gradients(program, (True, True), flags=True).flags


def test_a_program_without_wanted_gradients_has_no_pass() -> None:
    program = random_program(3, "sum")
    passes = gradients(program, (False,) * len(program.loads))
    assert passes.of_rows is None
    assert passes.of_others is None


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_dead_steps_are_left_out(kind: str) -> None:
    program = random_program(5, kind)
    used = {each for step in program.steps for each in step.args} | set(program.results[0].args)
    assert set(range(len(program.loads), len(program.shapes))) <= used


def test_one_score_for_all_heads_has_the_gradients_of_autograd() -> None:
    made = Builder()
    a, b = made.load("other", (HEADS, WIDTH)), made.load("row", (HEADS, WIDTH))
    score = made.sum_heads(made.sum_width(made.step("mul", a, b)))
    program, edges = made.program([Result("softmax", (score, a))]), edges_of(7)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, 7)]
    found = []
    for out in (
        reduce_edges(program, edges, lambda: transposed(edges), tensors)[0],
        reference.run(program, edges, tensors)[0],
    ):
        found.append(torch.autograd.grad(out.square().sum(), tensors))
    for have, want in zip(*found):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


def test_a_row_whose_edges_all_weigh_nothing_has_no_gradient() -> None:
    made = Builder()
    score, value = made.load("edge", (1, 1)), made.load("other", (1, WIDTH))
    program, edges = made.program([Result("softmax", (score, value))]), edges_of(7)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, 7)]
    row = int(edges.indptr.diff().argmax())
    hidden = torch.zeros_like(tensors[0], dtype=torch.bool)
    hidden[edges.indptr[row] : edges.indptr[row + 1]] = True
    scores = tensors[0].masked_fill(hidden, -torch.inf)
    out, _ = reduce_edges(program, edges, lambda: transposed(edges), [scores, tensors[1]])
    assert out[row].eq(0).all()
    of_scores, of_values = torch.autograd.grad(out.square().sum(), [scores, tensors[1]])
    assert of_scores[hidden].eq(0).all()
    assert of_scores.isfinite().all()
    assert of_values.isfinite().all()


def test_the_logarithm_beside_a_softmax_has_the_gradients_of_autograd() -> None:
    program, edges = random_program(11, "softmax"), edges_of(7)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, 7)]
    found = []
    for out, level in (
        reduce_edges(program, edges, lambda: transposed(edges), tensors),
        reference.run(program, edges, tensors),
    ):
        assert level is not None
        filled = level[edges.indptr.diff() > 0]
        loss = out.square().sum() + (filled * torch.arange(1.0, len(filled) + 1)[:, None, None]).sum()
        found.append(torch.autograd.grad(loss, tensors, allow_unused=True))
    for have, want in zip(*found):
        assert (have is None) == (want is None)
        if have is not None:
            torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("width", "spares"), [(64, True), (1, False)])
def test_conditions_go_from_pass_to_pass_where_that_spares_more_bytes(width: int, spares: bool) -> None:
    made = Builder()
    a, b = made.load("other", (1, 64)), made.load("row", (1, width))
    program = made.program([Result("sum", (made.step("relu", made.step("add", a, b)),))])
    # 64 bytes are written and read again, for rows of `width` numbers that need not be gathered
    assert gradients(program, (True, True), flags=True).flags == spares
