"""The counter function of weft.draw in Triton: the same bits for the same counters.

A key is a number that the host folds; of a clock that lies on the GPU, as in a step that is captured once and
replayed at other times, it is folded there, and kernels are given its address.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.draw import fold, signed


@triton.jit
def mix64(value):
    """Mix 64 bits (uint64), the finaliser of SplitMix64."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


@triton.jit
def mix32(value):
    """Mix 32 bits (uint32)."""
    value = (value ^ (value >> 16)) * 0x21F0AAAD
    value = (value ^ (value >> 15)) * 0x735A2D97
    return value ^ (value >> 15)


@triton.jit
def row_key(key, ids):
    """Give the 64 bits of each id."""
    step = (ids.to(tl.int64) + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    return mix64(key.to(tl.int64).to(tl.uint64) + step)


@triton.jit
def draw(rows, lanes):
    """Give 32 bits for each pair of a row's key (uint64) and a lane, broadcast against each other."""
    low = rows.to(tl.uint32)
    high = (rows >> 32).to(tl.uint32)
    return mix32(mix32(low + lanes.to(tl.uint32) * 0x9E3779B9) ^ high)


@triton.jit
def keep_tile(key, ids, lanes, below, scale):
    """Give `scale` for each kept (id, lane) and 0 for each dropped one, [ids, lanes]."""
    bits = draw(row_key(key, ids)[:, None], lanes[None, :])
    return tl.where(bits.to(tl.int64) >= below, scale, 0.0)


@triton.jit(do_not_specialize=["stream", "layer"])
def _fold_kernel(clock, out, stream, layer):
    """Store the key of one purpose at the moment of the clock (seed, epoch, step)."""
    seed = tl.load(clock)
    key = row_key(row_key(seed * 0, seed), stream)
    key = row_key(row_key(key, tl.load(clock + 1)), tl.load(clock + 2))
    tl.store(out, row_key(key, layer).to(tl.int64))


def key_of(clock: Tensor, stream: int, layer: int) -> int | Tensor:
    """Return the key of one purpose at the moment of a clock: a number, or where it lies on the GPU."""
    if clock.is_cpu:
        seed, epoch, step = clock.tolist()
        return signed(fold(seed, stream, epoch, step, layer))
    return folded(clock, stream, layer)


def folded(clock: Tensor, stream: int, layer: int) -> Tensor:
    """Return the key, [1] int64, folded where the clock lies."""
    out = torch.empty(1, dtype=torch.int64, device=clock.device)
    _fold_kernel[(1,)](clock, out, int(stream), layer, num_warps=1)
    return out
