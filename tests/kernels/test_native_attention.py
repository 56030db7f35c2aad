"""Attention on the native core gives what its definition gives, with gradients."""

import pytest
import torch
from kernel_checks import csr, values

from weft.kernels import native, native_attention, reference_attention
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2

CLOCK = torch.tensor([7, 1, 2], device="cpu")


@pytest.mark.skipif(native.library() is None, reason="the native core is not there")
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", [ADDITIVE, GATV2, DOT])
def test_outputs_and_gradients_are_those_of_the_definition(kind: int, dropout: float) -> None:
    indptr, indices = (each.cpu() for each in csr(5, 4, 12))
    tail = (2,) if kind == ADDITIVE else (2, 3)
    src, dst = values(5, *tail).cpu(), values(4, *tail, seed=1).cpu()
    a = values(2, 3, seed=2).cpu() if kind == GATV2 else None
    value = values(5, 2, 4, seed=3).cpu()
    draws = [dropout, torch.arange(12), CLOCK if dropout else None, 5]
    args = [kind, indptr, indices, src, dst, a, value, None, 0.3, *draws, None, None, None]
    out, top, total = native_attention.forward(*args)
    expected = reference_attention.forward(*args)
    torch.testing.assert_close((out, top, total), expected)
    given = [*args, *expected[1:], None, values(4, 2, 4, seed=4).cpu(), [True] * 5]
    found = native_attention.backward(*given)
    for mine, theirs in zip(found, reference_attention.backward(*given), strict=True):
        if theirs.numel():
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
