"""What the tests of Triton's kernels share: they run on a GPU or by the interpreter, in a process apart."""

import pytest
import torch
from kernel_checks import DEVICE

from weft.kernels import gpu

HERE = gpu.INTERPRETED or DEVICE == "cuda"
on_triton = pytest.mark.skipif(
    not HERE, reason="needs a GPU or Triton's interpreter; runs in a process apart"
)
CLOCK = torch.tensor([5, 2, 3], device=DEVICE)
HALF = torch.bfloat16


def rows(*numbers: int) -> torch.Tensor:
    """Return whole numbers on the device."""
    return torch.tensor(numbers, device=DEVICE)
