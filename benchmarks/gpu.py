"""What the cases on a GPU share: generated graphs of three known sizes, event timing, memory above inputs."""

import functools
import statistics
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.graph.message.block import Block

# nodes and edges of ogbn-arxiv (both directions), ogbn-products and Reddit
SIZES = {
    "arxiv": (169_343, 2_315_598),
    "products": (2_449_029, 123_718_280),
    "reddit": (232_965, 114_615_892),
}


def skewed(name: str, device: str = "cuda") -> Block:
    """Return a graph of that size; in- and out-degrees follow i^(-1/1.6), drawn independently."""
    num_nodes, num_edges = SIZES[name]
    generator = torch.Generator(device).manual_seed(0)

    def ends() -> Tensor:
        weight = torch.arange(1, num_nodes + 1, device=device, dtype=torch.float64) ** (-1 / 1.6)
        places = torch.rand(num_edges, generator=generator, device=device, dtype=torch.float64)
        drawn = torch.searchsorted(weight.cumsum(0) / weight.sum(), places).clamp_(max=num_nodes - 1)
        return torch.randperm(num_nodes, generator=generator, device=device)[drawn]

    order = (ends() * num_nodes + ends()).sort()[0]
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    indptr[1:] = torch.bincount(order // num_nodes, minlength=num_nodes).cumsum(0)
    indices = (order % num_nodes).int()
    del order
    held = kernels.transpose_csr(indptr, indices, num_nodes)
    torch.cuda.empty_cache()
    return Block(indptr, indices, num_src=num_nodes, transposed=lambda: held)


@dataclass(frozen=True)
class Measured:
    """The median time of a step in milliseconds and what it allocated above its inputs in GiB."""

    time: float
    memory: float

    def __str__(self) -> str:
        return f"{self.time:.2f} ms, {self.memory:.2f} GiB"


def measure(step: Callable[[], Any], repeat: int = 7) -> Measured | None:
    """Return time and memory of a step, or None where it does not fit into the GPU's memory."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with suppress(torch.OutOfMemoryError):
        step()
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30
        times = []
        for _ in range(repeat):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return Measured(statistics.median(times), memory)
    torch.cuda.empty_cache()
    return None


@functools.cache
def bandwidth() -> float:
    """Return the bytes a second that a large copy reads and writes on this GPU."""
    source = torch.empty(1 << 30, device="cuda")
    target = torch.empty_like(source)
    found = measure(lambda: target.copy_(source))
    assert found is not None
    return 2 * source.nbytes / found.time * 1e3


def cell(found: Measured | None) -> str:
    """Return what a table says of a measurement."""
    return "out of memory" if found is None else str(found)


def limit(moved: float, found: Measured | None) -> str:
    """Return the bytes that must move, the time of that at the bandwidth of a copy, and our ratio to it."""
    least = moved / bandwidth() * 1e3
    ratio = "–" if found is None else f"{found.time / least:.2f}"
    return f"{moved / 1e9:.1f} GB | {least:.2f} ms | {ratio}"
