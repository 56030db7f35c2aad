"""Gradient programs against autograd of the reference, in float64, on odd graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.programs import edges_of, random_program, tensors_of, transposed

from weft.compiler import reference
from weft.compiler.gradient import gradients
from weft.compiler.run import extra_tensors


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "min", "softmax"]))
def test_gradient_programs_equal_autograd(seed: int, kind: str) -> None:
    program = random_program(seed, kind)
    edges = edges_of(seed)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, seed)]
    out, *beside = reference.run(program, edges, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad(out, tensors, grad, allow_unused=True)
    passes = gradients(program, (True,) * len(tensors))
    given_tensors = [t.detach() for t in tensors]
    extra = extra_tensors(kind, out.detach(), [b.detach() for b in beside], grad, None)
    found: dict[int, torch.Tensor] = {}
    for made, places, over in (
        (passes.of_rows, passes.row_places, edges),
        (passes.of_others, passes.other_places, transposed(edges)),
    ):
        if made is not None:
            for place, each in zip(places, reference.run(made, over, [*given_tensors, *extra])):
                found[place] = found.get(place, 0) + each
    for place, want in enumerate(expected):
        have = found.get(place, torch.zeros_like(tensors[place]))
        want = torch.zeros_like(tensors[place]) if want is None else want
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


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
