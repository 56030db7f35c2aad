"""One matrix per segment of rows, as one launch for all segments where they are many and small."""

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from weft.kernels import gpu, reference
from weft.kernels.triton.spmm import FLOATS
from weft.kernels.triton.tiles import block_of, tile_of

BLOCK = 64
# Segments of more rows than this on average go to the vendor's matrix product, one call each.
LONG = 4096


class _Tiles(NamedTuple):
    """Blocks of at most BLOCK rows, none across two segments."""

    segments: Tensor
    starts: Tensor
    bounds: Tensor
    """the segments' offsets, on the device"""


_tiles = WeakTensorKeyDictionary()


@triton.jit
def _matmul_kernel(
    x,
    weights,
    segments,
    starts,
    bounds,
    out,
    K: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Multiply a block of rows of one segment: x [rows, K] by weights [segments, K, N] into out [rows, N].

    Block i has rows from starts[i] on, of segment segments[i], which ends at bounds[segments[i] + 1].
    """
    tile = tl.program_id(0)
    segment = tl.load(segments + tile)
    start = tl.load(starts + tile)
    end = tl.load(bounds + segment + 1)
    rows = start + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tile_of(x, rows, rows < end, k, K)
        right = tile_of(weights + segment * (K * N), k, k < K, n, N)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    inside = (rows < end)[:, None] & (n < N)[None, :]
    tl.store(out + rows[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _outer_kernel(
    x,
    grad,
    bounds,
    out,
    K: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Sum xᵀ grad over the rows of a segment, bounds[i] … bounds[i + 1]: out [segments, K, N]."""
    segment = tl.program_id(0).to(tl.int64)
    start = tl.load(bounds + segment)
    count = (tl.load(bounds + segment + 1) - start).to(tl.int32)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    total = tl.zeros([BK, BN], tl.float32)
    for first in range(0, count, BM):
        place = first + tl.arange(0, BM)
        rows = start + place
        left = tl.load(
            x + rows[None, :] * K + k[:, None], mask=(place < count)[None, :] & (k < K)[:, None], other=0.0
        )
        right = tile_of(grad, rows, place < count, n, N)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    inside = (k < K)[:, None] & (n < N)[None, :]
    at = segment * (K * N) + k[:, None] * N + n[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


def segment_matmul(x: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return what `reference.segment_matmul` returns."""
    if not _short(x, offsets):
        return reference.segment_matmul(x, offsets, weights)
    tiles = _tiles_of(offsets, x)
    (depth, width), x, weights = weights.shape[1:], x.contiguous(), weights.contiguous()
    out = torch.empty((x.shape[0], width), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    block = _block(width)
    _matmul_kernel[(tiles.segments.shape[0], triton.cdiv(width, block))](
        x,
        weights,
        tiles.segments,
        tiles.starts,
        tiles.bounds,
        out,
        K=depth,
        N=width,
        PRECISION=_precision(),
        BM=BLOCK,
        BK=32,
        BN=block,
        num_warps=4,
    )
    return out


def segment_outer(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """Return what `reference.segment_outer` returns."""
    if not _short(x, offsets):
        return reference.segment_outer(x, grad, offsets)
    tiles = _tiles_of(offsets, x)
    depth, width, num_segments = x.shape[1], grad.shape[1], offsets.shape[0] - 1
    out = torch.empty((num_segments, depth, width), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    deep, wide = _block(depth), _block(width)
    _outer_kernel[(num_segments, triton.cdiv(depth, deep), triton.cdiv(width, wide))](
        x.contiguous(),
        grad.contiguous(),
        tiles.bounds,
        out,
        K=depth,
        N=width,
        PRECISION=_precision(),
        BM=32,
        BK=deep,
        BN=wide,
        num_warps=4,
    )
    return out


def _short(x: Tensor, offsets: Tensor) -> bool:
    num_segments = offsets.shape[0] - 1
    return x.dtype in FLOATS and num_segments > 1 and 0 < x.shape[0] <= LONG * num_segments


def _block(width: int) -> int:
    return min(block_of(width), 64)


def _precision() -> str:
    return "tf32" if gpu.allows_tf32() else "ieee"


def _tiles_of(offsets: Tensor, x: Tensor) -> _Tiles:
    """Return the blocks of rows, remembered with the offsets."""
    key = (offsets._version, x.shape[0], x.device)
    held = _tiles.get(offsets)
    if held is not None and held[0] == key:
        tiles: _Tiles = held[1]
        return tiles
    bounds = np.array(reference.segments(offsets, x.shape[0]), dtype=np.int64)
    counts = (bounds[:, 1] - bounds[:, 0] + BLOCK - 1) // BLOCK
    segments = np.repeat(np.arange(len(bounds)), counts)
    nth = np.arange(segments.size) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = bounds[segments, 0] + nth * BLOCK
    ends = np.append(bounds[:, 0], bounds[-1, 1])
    tiles = _Tiles(*(torch.from_numpy(y).to(x.device) for y in (segments, starts, ends)))
    _tiles[offsets] = (key, tiles)
    return tiles
