"""Attention in plain PyTorch is a softmax of scores over the edges of a row, for each kind of score."""

import pytest
import torch
from kernel_checks import csr, values
from torch.nn.functional import leaky_relu

from weft.kernels import reference_attention
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2

pytestmark = pytest.mark.gpu

INDPTR, INDICES = csr(5, 4, 12)
ROWS = torch.repeat_interleave(INDPTR.diff())
SLOPE, WIDE = 0.3, torch.float64


@pytest.mark.parametrize("kind", [ADDITIVE, GATV2, DOT])
def test_outputs_and_gradients_are_those_of_a_loop(kind: int) -> None:
    tail = (2,) if kind == ADDITIVE else (2, 3)
    src, dst = values(5, *tail, dtype=WIDE, grad=True), values(4, *tail, seed=1, dtype=WIDE, grad=True)
    a = values(2, 3, seed=2, dtype=WIDE, grad=True) if kind == GATV2 else None
    value = values(5, 2, 4, seed=3, dtype=WIDE, grad=True)
    args = [kind, INDPTR, INDICES, src, dst, a, value, None, SLOPE, 0.0, None, None, 0, None, None, None]
    out, top, total = reference_attention.forward(*args)
    rows = []
    for v in range(4):
        near = INDICES[v == ROWS].long()
        if kind == ADDITIVE:
            score = leaky_relu(src[near] + dst[v], SLOPE)
        elif kind == GATV2:
            score = (a * leaky_relu(src[near] + dst[v], SLOPE)).sum(-1)
        else:
            score = SLOPE * (src[near] * dst[v]).sum(-1)
        rows.append((score.softmax(0)[..., None] * value[near]).sum(0))
    expected = torch.stack(rows)
    torch.testing.assert_close(out, expected)
    leaves = [each for each in (src, dst, a, value) if each is not None]
    wanted = torch.autograd.grad(expected.square().sum(), leaves)
    plain = [each.detach() if isinstance(each, torch.Tensor) else each for each in args]
    grads = reference_attention.backward(
        *plain, top.detach(), total.detach(), None, 2 * expected.detach(), [True] * 5
    )
    found = [grad for grad in grads[:4] if grad.numel()]
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
