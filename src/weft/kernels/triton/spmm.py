"""Sums and means over the edges of each row: the neighbours' rows are read once, in wide loads.

A program holds a tile of edges × columns. One tile of columns is done for every row before the next, so that
the part of x in use is narrower and more of it stays in cache.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.plan import item_of, merge_sums, plan_of, power

# bytes of x that are taken to stay in the second-level cache; GPUs of today have 40 to 120 MB
CACHE = 40 << 20
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Tile(NamedTuple):
    """How many edges and columns a program, which is one warp, works on at a time."""

    edges: int
    columns: int
    stages: int = 1
    """tiles in flight"""


@triton.jit
def _spmm_kernel(
    indptr,
    indices,
    edges,
    x,
    weight,
    src_scale,
    dst_scale,
    out,
    partial,
    rows,
    starts,
    num_segments,
    F: tl.constexpr,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    PERMUTED: tl.constexpr,
    SRC_SCALED: tl.constexpr,
    DST_SCALED: tl.constexpr,
    MEAN: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    WIDE: tl.constexpr,
    BE: tl.constexpr,
    BF: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sum the rows of x that the edges of a row, or of a segment of a hub, point at.

    tensor      shape               holds
    edges       [E]                 where PERMUTED: the place of each edge's weight
    x           [num_src, F]        read through indices, heads side by side: F = HEADS · D
    weight      [E, HEADS]          float32
    src_scale   [num_src]           float32; dst_scale [num_dst]
    out         [num_dst, F]        out: rows that are no hubs
    partial     [segments, F]       out: float32 sums of each segment
    """
    row, start, count, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    inside = f < F
    offsets = tl.arange(0, BE)
    indices += start
    # A sum for each lane of edges, added up once behind the loop, always in the same order.
    total = tl.zeros([BE, BF], tl.float32)
    # the next indices are fetched while the rows of these are on their way
    source = tl.load(indices + offsets, mask=offsets < count, other=0)
    for k in tl.range(0, count, BE, num_stages=STAGES):
        place = k + offsets
        live = place < count
        following = tl.load(indices + place + BE, mask=place + BE < count, other=0)
        if WIDE:
            source = source.to(tl.int64)
        value = tl.load(
            x + source[:, None] * F + f[None, :], mask=live[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        if SRC_SCALED:
            value *= tl.load(src_scale + source, mask=live, other=0.0)[:, None]
        if WEIGHTED:
            edge = start + place
            if PERMUTED:
                edge = tl.load(edges + edge, mask=live, other=0).to(tl.int64)
            if HEADS == 1:
                value *= tl.load(weight + edge, mask=live, other=0.0)[:, None]
            else:
                value *= tl.load(
                    weight + edge[:, None] * HEADS + (f // D)[None, :],
                    mask=live[:, None] & inside[None, :],
                    other=0.0,
                )
        total += value
        source = following
    result = tl.sum(total, 0)
    if HUBS:
        if segment:
            tl.store(partial + tl.program_id(0).to(tl.int64) * F + f, result, mask=inside)
    if MEAN:
        result /= tl.maximum(degree, 1).to(tl.float32)
    if DST_SCALED:
        result *= tl.load(dst_scale + row)
    alone = inside
    if HUBS:
        alone = f < tl.where(degree <= SEGMENT, F, 0)
    tl.store(out + row * F + f, result.to(out.dtype.element_ty), mask=alone)


def tile_for(indptr: Tensor, indices: Tensor, x: Tensor, width: int) -> Tile:
    """Return the tile for a graph and rows of `width` values: a rule of sizes alone, so bits stay the same.

    Rows with few edges are read whole. Otherwise all rows are done for one slice of the columns before the
    next: of 128 bytes where so much of x stays in cache, else of 256, with three tiles on their way.
    """
    # By mean degree, not by the row at hand: all programs of a launch have one shape.
    few = indices.shape[0] < 32 * (indptr.shape[0] - 1)
    cached = x.shape[0] * 128 <= CACHE
    slice_bytes = 512 if few else 128 if cached else 256
    columns = min(power(width), slice_bytes // x.element_size(), 128)
    pipelined = not few and not cached and width % columns == 0
    return Tile(16 if cached and not few else 8, columns, 3 if pipelined else 1)


def spmm(*arguments: Any) -> Tensor:
    """Return what `reference.spmm` returns."""
    indptr, indices, edges, x, weight, src_scale, dst_scale, mean, src_mean, t_indptr, *_ = arguments
    if x.dtype not in FLOATS:
        return reference.spmm(*arguments)
    num_rows, width = indptr.shape[0] - 1, math.prod(x.shape[1:])
    out = torch.empty((num_rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    if src_mean and t_indptr is not None:
        src_scale = reference.inverse_degree(t_indptr, torch.float32, src_scale)
    plan = plan_of(indptr, indices.shape[0])
    # In float32 whatever x is: segments of a hub are added afterwards, and halves would round each.
    partial = out if not plan.num_hubs else out.new_empty((plan.num_segments, width), dtype=torch.float32)
    heads = weight.shape[1] if weight is not None and weight.dim() == 2 else 1
    tile = tile_for(indptr, indices, x, width)
    given = [y if y is None else y.contiguous() for y in (edges, x, weight, src_scale, dst_scale)]
    indptr = indptr.contiguous()
    dense = [indptr if y is None else y for y in given]  # a pointer that is not read
    _spmm_kernel[(num_rows + plan.num_segments, triton.cdiv(width, tile.columns))](
        indptr,
        indices.contiguous(),
        *dense,
        out,
        partial,
        *plan.items,
        F=width,
        D=width // heads,
        HEADS=heads,
        WEIGHTED=weight is not None,
        PERMUTED=edges is not None,
        SRC_SCALED=src_scale is not None,
        DST_SCALED=dst_scale is not None,
        MEAN=mean,
        **plan.flags(),
        WIDE=x.numel() >= 1 << 31,
        BE=tile.edges,
        BF=tile.columns,
        STAGES=tile.stages,
        num_warps=1,
    )
    if plan.num_hubs:
        merge_sums(plan, partial, out.view(num_rows, width), indptr, mean=mean, scale=given[4])
    return out
