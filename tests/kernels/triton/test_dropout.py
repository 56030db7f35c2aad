"""Dropout by Triton draws the mask of the reference."""

import pytest
import torch
from kernel_checks import DEVICE, compare, values
from triton_checks import CLOCK, HALF, on_triton

from weft import draw, kernels
from weft.kernels import reference

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_dropout_draws_the_same_mask(dtype: torch.dtype) -> None:
    x, ids = values(30, 33, dtype=dtype), torch.arange(30, device=DEVICE) * 7
    args = (x, ids, 0.4, CLOCK, int(draw.Stream.DROPOUT), 2)
    out = kernels.dropout(x, ids, 0.4, clock=CLOCK, layer=2)
    assert out.eq(0).equal(reference.dropout(*args).eq(0))
    compare(lambda x: kernels.dropout(x, ids, 0.4, clock=CLOCK), [x])
    lanes = torch.arange(30, device=DEVICE)
    flat = kernels.dropout(x[:, 0], ids, 0.4, clock=CLOCK, layer=2, lanes=lanes)
    assert flat.eq(0).equal(reference.dropout(x[:, 0], *args[1:], lanes).eq(0))
