"""What the cases on a GPU share: generated graphs of three known sizes, event timing, memory above inputs."""

import functools
import signal
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
    """Return time and memory of a step, or None where it does not fit into the GPU's memory.

    What the first step leaves behind, such as the plan of a graph, counts as an input.
    """
    with suppress(torch.OutOfMemoryError):
        step()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
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


@functools.cache
def rate(precision: str) -> float:
    """Return the operations a second of a large matrix product on this GPU."""
    one, two = torch.randn(2, 8192, 8192, device="cuda")
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = precision
    found = measure(lambda: one @ two, repeat=3)
    torch.backends.cuda.matmul.fp32_precision = before
    assert found is not None
    return 2 * 8192**3 / found.time * 1e3


def arithmetic(products: float, steps: float) -> float:
    """Return the seconds of operations of products, as precise as float32 by three of tf32, and of others.

    A product counts an addition and a multiplication as two, which are one where they are fused.
    """
    return 3 * products / rate("tf32") + 2 * steps / rate("ieee")


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call gives, or in words that it took longer than it may."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call()
    except TimeoutError as error:
        return str(error)
    except torch.OutOfMemoryError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def assert_near(ours: Tensor, theirs: Tensor, tolerance: float = 1e-4) -> None:
    """Refuse results that differ by more, as a part of their norm."""
    error = ((ours.float() - theirs.float()).norm() / theirs.float().norm()).item()
    if not error <= tolerance:
        raise AssertionError(f"results differ by {error:.2e}")


def cell(found: Any) -> str:
    """Return what a table says of a measurement."""
    return "out of memory" if found is None else str(found)


def limit(moved: float, found: Measured | None) -> str:
    """Return the bytes that must move, the time of that at the bandwidth of a copy, and our ratio to it."""
    least = moved / bandwidth() * 1e3
    ratio = "–" if found is None else f"{found.time / least:.2f}"
    return f"{moved / 1e9:.1f} GB | {least:.2f} ms | {ratio}"
