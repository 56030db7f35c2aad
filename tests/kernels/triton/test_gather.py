"""Gathered rows by Triton, of any type, and their gradients."""

import pytest
import torch
from kernel_checks import compare, values
from triton_checks import HALF, on_triton, rows

from weft import kernels

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
def test_gathered_rows_get_the_sum_of_their_gradients() -> None:
    picked = rows(3, 1, 1, 5, 1)
    compare(lambda x: kernels.gather(x, picked), [values(8, 7)])
    for dtype in (torch.bool, torch.int8, torch.int64, HALF, torch.float64):
        x = values(8, 3).round().to(dtype)
        assert kernels.gather(x, picked).equal(x[picked])
