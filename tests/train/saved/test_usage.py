"""Memory is counted in bytes, and its peak is never below what is in use."""

import gc
import subprocess
import sys

import pytest
import torch

from weft.train.saved.usage import memory_bytes, peak_memory_bytes


def test_a_large_tensor_shows() -> None:
    cpu = torch.device("cpu")
    gc.collect()  # what other tests left may go meanwhile, some dozens of megabytes
    before = memory_bytes(cpu)
    held = torch.ones(64 * 2**20)
    assert memory_bytes(cpu) - before > 128 * 2**20
    assert peak_memory_bytes(cpu) >= held.numel() * held.element_size()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_a_worker_does_not_report_the_peak_of_who_started_it() -> None:
    held = torch.ones(128 * 2**20)  # 512 MiB here, before the child begins
    code = (
        "import torch; from weft.train.saved.usage import peak_memory_bytes as peak;"
        "first = peak(torch.device('cpu')); torch.ones(64 * 2**20); print(first, peak(torch.device('cpu')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, after = (int(word) for word in told.stdout.split())
    assert first < held.nbytes
    assert after - first > 200 * 2**20, "its own peak counts"
