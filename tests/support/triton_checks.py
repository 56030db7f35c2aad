"""What the tests of Triton's kernels share: they run on a GPU or by the interpreter, in a process apart."""

import os
import subprocess
import sys
from pathlib import Path

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


def run_under_the_interpreter(*files: str | Path) -> None:
    """Run test files by Triton's interpreter, which must be chosen before Python starts; fail as they do."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    settings = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    settings.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", *options, *map(str, files)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=settings, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def rows(*numbers: int) -> torch.Tensor:
    """Return whole numbers on the device."""
    return torch.tensor(numbers, device=DEVICE)
