"""Memory is counted in bytes, and its peak is never below what is in use."""

import gc

import torch

from weft.train.memory import memory_bytes, peak_memory_bytes


def test_a_large_tensor_shows() -> None:
    cpu = torch.device("cpu")
    gc.collect()  # what other tests left may go meanwhile, some dozens of megabytes
    before = memory_bytes(cpu)
    held = torch.ones(64 * 2**20)
    assert memory_bytes(cpu) - before > 128 * 2**20
    assert peak_memory_bytes(cpu) >= held.numel() * held.element_size()
