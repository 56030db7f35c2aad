"""Memory is counted in bytes, and its peak is never below what is in use."""

import torch

from weft.train.memory import memory_bytes, peak_memory_bytes


def test_a_large_tensor_shows() -> None:
    cpu = torch.device("cpu")
    before = memory_bytes(cpu)
    held = torch.ones(16 * 2**20)
    assert memory_bytes(cpu) - before > 48 * 2**20
    assert peak_memory_bytes(cpu) >= held.numel() * held.element_size()
