"""Rates of single operators: what a unit of each kind of work takes one thread."""

import time
from collections.abc import Callable
from functools import partial

import torch

from weft import kernels
from weft.kernels.quantise import quantise

_SECONDS = 0.1
_NODES, _DEGREE = 20_000, 10
_CALLS = 100  # what a phase takes beside its operators, in calls of the smallest
_NEAR, _BEYOND = 1 << 18, 1 << 24  # values of tensors that a cache holds, and that none does
_SENT = 20  # what a call among workers takes who begins it, in the same
WIDTHS = (16, 64, 256)


def timed(work: Callable[[], object]) -> float:
    """Return the least seconds of a call, among as many as fit into a time."""
    work()
    best, ends = float("inf"), time.perf_counter() + _SECONDS
    while best == float("inf") or time.perf_counter() < ends:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def rates() -> tuple[dict[str, float], dict[str, str]]:
    """Return seconds a unit of each kind of work, and what was found, in words."""
    generator = torch.Generator().manual_seed(0)
    indptr = torch.arange(0, _NODES * _DEGREE + 1, _DEGREE)
    indices = torch.randint(_NODES, (_NODES * _DEGREE,), generator=generator, dtype=torch.int32)
    told: dict[str, str] = {}
    found: dict[str, float] = {}
    sums: dict[tuple[int, torch.dtype], float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for width in WIDTHS:
            rows = torch.rand(_NODES, width, generator=generator).to(dtype)
            taken = timed(partial(kernels.spmm, indptr, indices, rows))
            name = f"sums of edges, width {width}, {str(dtype)[6:]}"
            told[name] = f"{len(indices) * width / taken / 1e9:.2f} G values/s"
            sums[width, dtype] = taken
    # Of the narrow rows, which stay in the cache: half of their time is the edge, half its values.
    narrow = WIDTHS[0]
    found["edges"] = sums[narrow, torch.float32] / len(indices) / 2
    for name, dtype in (("edge_values", torch.float32), ("half_values", torch.bfloat16)):
        found[name] = sums[WIDTHS[1], dtype] / len(indices) / WIDTHS[1]
    # What no operator has for itself is a guess from these; trial runs tell.
    found |= {"attended": found["edges"], "attending": _DEGREE * found["edges"]}
    found |= _dense(told, generator)
    told["edges of batches"] = f"{1 / found['drawn'] / 1e6:.1f} M edges/s"
    return found, told


def _dense(told: dict[str, str], generator: torch.Generator) -> dict[str, float]:
    rows, weight = torch.rand(4096, 256, generator=generator), torch.rand(256, 128, generator=generator)
    product = timed(lambda: rows @ weight) / (rows.numel() * 128)
    narrow = rows.bfloat16(), weight.bfloat16()
    half = timed(lambda: narrow[0] @ narrow[1]) / (rows.numel() * 128)
    touch, beyond = _touched(_NEAR), _touched(_BEYOND)
    picked = torch.randint(4096, (8192,), generator=generator)
    gather = timed(lambda: rows[picked]) / (2 * 8192 * 256 * 4)
    small = torch.rand(16)
    call = timed(lambda: small + 1.0)
    ids, clock = torch.arange(len(rows)), torch.zeros(3, dtype=torch.int64)
    mask = timed(lambda: kernels.dropout(rows, ids, 0.5, clock=clock)) / rows.numel()
    code = timed(lambda: quantise(rows, ids, 8, clock=clock)) / rows.numel()
    told["dense products"] = f"{2 / product / 1e9:.1f} GFLOP/s"
    told["dense products, bfloat16"] = f"{2 / half / 1e9:.1f} GFLOP/s"
    told["copies"] = f"{1 / touch / 1e9:.1f} GB/s"
    told["copies beyond the cache"] = f"{1 / beyond / 1e9:.1f} GB/s"
    told["values made codes"] = f"{1 / code / 1e9:.2f} G values/s"
    told["rows by index"] = f"{1 / gather / 1e9:.1f} GB/s"
    work = {"products": product, "half_products": half, "touched": touch, "gathered": gather, "masked": mask}
    work |= {"coded": code, "far": max(beyond - touch, touch / 10)}
    own = {"calls": call, "steps": _CALLS * call, "sent": _SENT * call}
    # Guesses again: waking threads takes some calls, and a page is cleared before it is written.
    return {**work, **own, "divided": 2 * call, "fresh": touch, "drawn": sampled_edge()}


def _touched(values: int) -> float:
    """Return the seconds in which a byte is read, or written, of so many values."""
    held, out = torch.rand(values), torch.empty(values)
    return timed(lambda: torch.add(held, 1.0, out=out)) / (8 * values)


def sampled_edge() -> float:
    """Return the seconds that an edge of a drawn batch takes."""
    from weft.datasets import open_dataset
    from weft.samplers.neighbor import NeighborSampler

    graph = open_dataset(name="community", nodes=5000, features=8)
    sampler = NeighborSampler(graph, [10, 10])
    seeds = torch.arange(0, 5000, 5)
    edges = sum(block.num_edges for block in sampler.sample(seeds).blocks)
    return timed(lambda: sampler.sample(seeds)) / max(edges, 1)
