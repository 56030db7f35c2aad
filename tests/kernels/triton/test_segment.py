"""One matrix per segment by Triton, against the reference."""

import pytest
import torch
from kernel_checks import compare, values
from triton_checks import HALF, on_triton

from weft import kernels
from weft.kernels import gpu

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
# the interpreter's product of bfloat16 reads the bits as whole numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16 if gpu.INTERPRETED else HALF])
def test_a_matrix_a_segment(dtype: torch.dtype) -> None:
    offsets = torch.tensor([0, 3, 3, 80], device="cpu")
    run = lambda x, w: kernels.segment_matmul(x, offsets, w)  # noqa: E731
    compare(run, [values(80, 7, dtype=dtype), values(3, 7, 9, dtype=dtype)], terms=100)
