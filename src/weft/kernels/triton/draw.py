"""The counter function of weft.draw in Triton: the same bits for the same counters."""

import triton
import triton.language as tl


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


def signed(key: int) -> int:
    """Return the 64-bit key as the signed number of the same bits, which is what kernels take."""
    return key - (1 << 64) if key >= 1 << 63 else key
