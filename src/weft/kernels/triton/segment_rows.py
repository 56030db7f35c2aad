"""Rows of a matrix, by number, times one weight per segment: rows are read where they lie, never gathered.

A launch a segment, each of a fixed number of programs that hold the weight and go over blocks of rows. They
follow each other, so gradients that meet in a row add up in the order of the segments.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import gpu, reference
from weft.kernels.triton.spmm import FLOATS
from weft.kernels.triton.steps import product, upper
from weft.kernels.triton.tiles import block_of, tile_of

WIDEST = 128
"""Columns up to which a weight and a block of rows fit into fast memory."""
BLOCK = 64
"""Rows of a block: the fewest that the largest matrix instructions take."""
DEEP = 32
"""Rows of a block that are added up."""
PROGRAMS = 264


@triton.jit
def _product_kernel(
    x,
    rows,
    turned,
    out,
    first,
    count,
    K: tl.constexpr,
    N: tl.constexpr,
    ADDS: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Multiply the rows of a segment, places first … first + count − 1, by a weight.

    tensor      shape       holds
    rows        [M]         the row of each place
    turned      [N, K]      the weight, transposed
    x                       [num_rows, K], read at its rows; where ADDS [M, K], one row per place
    out                     [M, N], one row per place; where ADDS [num_rows, N], added to at its rows
    """
    k = tl.arange(0, BK)
    n = tl.arange(0, BN)
    weight = tl.trans(tile_of(turned, n, n < N, k, K))
    high = upper(weight, PRECISION)
    rest = weight - high
    for block in range(tl.program_id(0), tl.cdiv(count, BM), tl.num_programs(0)):
        place = block * BM + tl.arange(0, BM)
        live = place < count
        at = first + place
        row = tl.load(rows + at, mask=live, other=0).to(tl.int64)
        source = at if ADDS else row
        target = row if ADDS else at
        given = tile_of(x, source, live, k, K)
        made = product(given, high, rest, PRECISION)
        cell = out + target[:, None] * N + n[None, :]
        inside = live[:, None] & (n < N)[None, :]
        if ADDS:
            made += tl.load(cell, mask=inside, other=0.0)
        tl.store(cell, made.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _outer_kernel(
    x,
    rows,
    grad,
    part,
    first,
    count,
    K: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Sum xᵀ grad over the rows of a segment that a program has: part [programs, K, N]."""
    k = tl.arange(0, BK)
    n = tl.arange(0, BN)
    total = tl.zeros([BK, BN], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(count, BM), tl.num_programs(0)):
        place = block * BM + tl.arange(0, BM)
        live = place < count
        at = first + place
        row = tl.load(rows + at, mask=live, other=0).to(tl.int64)
        left = tile_of(x, row, live, k, K)
        right = tile_of(grad, at, live, n, N)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
    cell = part + tl.program_id(0) * (K * N) + k[:, None] * N + n[None, :]
    tl.store(cell, total, mask=(k < K)[:, None] & (n < N)[None, :])


def segment_matmul_of(x: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return what `reference.segment_matmul_of` returns."""
    if not _fits(x, weights):
        return reference.segment_matmul_of(x, rows, offsets, weights)
    out = x.new_empty((rows.shape[0], weights.shape[2]))
    _multiply(x, rows, offsets, weights.transpose(1, 2), out, adds=False)
    return out


def segment_matmul_of_rows(
    grad: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor, num_rows: int
) -> Tensor:
    """Return what `reference.segment_matmul_of_rows` returns."""
    if not _fits(grad, weights):
        return reference.segment_matmul_of_rows(grad, rows, offsets, weights, num_rows)
    # Several segments add to a row: what is stored in 16 bits is summed in 32.
    out = grad.new_zeros((num_rows, weights.shape[1]), dtype=torch.float32)
    _multiply(grad, rows, offsets, weights, out, adds=True)
    return out.to(grad.dtype)


def segment_outer_of(x: Tensor, rows: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """Return what `reference.segment_outer_of` returns."""
    (depth, width), num_segments = (x.shape[1], grad.shape[1]), offsets.shape[0] - 1
    if x.dtype not in FLOATS or max(depth, width) > WIDEST:
        return reference.segment_outer_of(x, rows, grad, offsets)
    out = x.new_zeros((num_segments, depth, width))
    x, rows, grad = x.contiguous(), rows.contiguous(), grad.contiguous()
    part = x.new_empty((PROGRAMS, depth, width), dtype=torch.float32)
    for segment, (start, stop) in enumerate(reference.segments(offsets, rows.shape[0])):
        programs = min(PROGRAMS, triton.cdiv(stop - start, DEEP))
        if programs:
            _outer_kernel[(programs,)](
                x,
                rows,
                grad,
                part,
                start,
                stop - start,
                K=depth,
                N=width,
                PRECISION=_precision(x),
                BM=DEEP,
                BK=block_of(depth),
                BN=block_of(width),
                num_warps=4,
            )
            out[segment] = part[:programs].sum(0)
    return out


def _multiply(x: Tensor, rows: Tensor, offsets: Tensor, turned: Tensor, out: Tensor, *, adds: bool) -> None:
    """Multiply each segment by its weight, `turned` [S, N, K]."""
    _, width, depth = turned.shape
    x, rows, turned = x.contiguous(), rows.contiguous(), turned.contiguous()
    for segment, (start, stop) in enumerate(reference.segments(offsets, rows.shape[0])):
        if stop > start:
            _product_kernel[(min(PROGRAMS * 2, triton.cdiv(stop - start, BLOCK)),)](
                x,
                rows,
                turned[segment],
                out,
                start,
                stop - start,
                K=depth,
                N=width,
                ADDS=adds,
                PRECISION=_precision(x),
                BM=BLOCK,
                BK=block_of(depth),
                BN=block_of(width),
                num_warps=4,
            )


def _fits(x: Tensor, weights: Tensor) -> bool:
    return x.dtype in FLOATS and max(weights.shape[1:]) <= WIDEST


def _precision(x: Tensor) -> str:
    """Return how products are made: of float32 as precisely as float32, or as torch was told."""
    return "tf32" if x.dtype != torch.float32 or gpu.allows_tf32() else "tf32x3"
