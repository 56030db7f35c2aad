"""One value for every edge from the rows at its two ends; a program keeps the destination's row."""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.plan import item_of, plan_of, power
from weft.kernels.triton.spmm import FLOATS


@triton.jit
def _dot_kernel(
    indptr,
    indices,
    edges,
    a,
    b,
    src_scale,
    dst_scale,
    out,
    rows,
    starts,
    num_segments,
    H: tl.constexpr,
    D: tl.constexpr,
    PERMUTED: tl.constexpr,
    SRC_SCALED: tl.constexpr,
    DST_SCALED: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
    BD: tl.constexpr,
):
    """Give each edge the dot products of the rows at its two ends.

    tensor      shape               holds
    edges       [E]                 where PERMUTED: the place of each edge in `out`
    a, b        [*, H, D]           rows of sources, read through indices, and of destinations
    src_scale   [num_src]           float32; dst_scale [num_dst]
    out         [E, H]              out: float32
    """
    row, start, count, _, _ = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    d = tl.arange(0, BD)
    at = h[:, None] * D + d[None, :]
    inside = (h < H)[:, None] & (d < D)[None, :]
    offsets = tl.arange(0, BE)
    right = tl.load(b + row * (H * D) + at, mask=inside, other=0.0).to(tl.float32)
    if DST_SCALED:
        right *= tl.load(dst_scale + row)
    for k in range(0, count, BE):
        live = k + offsets < count
        edge = start + k + offsets
        source = tl.load(indices + edge, mask=live, other=0).to(tl.int64)
        left = tl.load(
            a + source[:, None, None] * (H * D) + at[None, :, :],
            mask=live[:, None, None] & inside[None, :, :],
            other=0.0,
        ).to(tl.float32)
        result = tl.sum(left * right[None, :, :], 2)
        if SRC_SCALED:
            result *= tl.load(src_scale + source, mask=live, other=0.0)[:, None]
        if PERMUTED:
            edge = tl.load(edges + edge, mask=live, other=0).to(tl.int64)
        tl.store(out + edge[:, None] * H + h[None, :], result, mask=live[:, None] & (h < H)[None, :])


def sddmm_dot(*arguments: Any) -> Tensor:
    """Return what `reference.sddmm_dot` returns."""
    indptr, indices, edges, a, b, src_scale, dst_scale, mean, src_mean, t_indptr, *_ = arguments
    if a.dtype not in FLOATS:
        return reference.sddmm_dot(*arguments)
    # zeros: edges that belong to no row, as padding has them, are never written
    out = torch.zeros((indices.shape[0], *a.shape[1:-1]), dtype=torch.float32, device=a.device)
    if not out.numel():
        return out
    if src_mean and t_indptr is not None:
        src_scale = reference.inverse_degree(t_indptr, torch.float32, src_scale)
    if mean:
        dst_scale = reference.inverse_degree(indptr, torch.float32, dst_scale)
    plan = plan_of(indptr, indices.shape[0])
    heads, dim = (a.shape[1] if a.dim() == 3 else 1), a.shape[-1]
    depth = power(dim)
    block = min(power(heads), max(256 // depth, 1))
    given = [y if y is None else y.contiguous() for y in (edges, a, b, src_scale, dst_scale)]
    dense = [indptr if y is None else y for y in given]  # a pointer that is not read
    _dot_kernel[(indptr.shape[0] - 1 + plan.num_segments, triton.cdiv(heads, block))](
        indptr.contiguous(),
        indices.contiguous(),
        *dense,
        out,
        *plan.items,
        H=heads,
        D=dim,
        PERMUTED=edges is not None,
        SRC_SCALED=src_scale is not None,
        DST_SCALED=dst_scale is not None,
        **plan.flags(),
        BE=min(max(2048 // (block * depth), 1), 32),
        BH=block,
        BD=depth,
        num_warps=1 if depth <= 256 else 4,
    )
    return out


@triton.jit
def _sddmm_kernel(
    indptr,
    indices,
    a,
    b,
    out,
    rows,
    starts,
    num_segments,
    F: tl.constexpr,
    OP: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BF: tl.constexpr,
):
    """Give each edge a[u] op b[v]: a [num_src, F], b [num_dst, F], out [E, F] in the order of the edges."""
    row, start, count, _, _ = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    offsets = tl.arange(0, BE)
    right = tl.load(b + row * F + f, mask=f < F, other=0.0).to(tl.float32)[None, :]
    for k in range(0, count, BE):
        live = k + offsets < count
        edge = start + k + offsets
        source = tl.load(indices + edge, mask=live, other=0).to(tl.int64)
        live = live[:, None] & (f < F)[None, :]
        left = tl.load(a + source[:, None] * F + f[None, :], mask=live, other=0.0).to(tl.float32)
        if OP == "add":
            result = left + right
        elif OP == "sub":
            result = left - right
        else:
            result = left * right
        tl.store(out + edge[:, None] * F + f[None, :], result.to(out.dtype.element_ty), mask=live)


def sddmm(indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, op: str, *_: Tensor | None) -> Tensor:
    """Return what `reference.sddmm` returns."""
    if a.dtype not in FLOATS:
        return reference.sddmm(indptr, indices, a, b, op)
    out = torch.empty((indices.shape[0], *a.shape[1:]), dtype=a.dtype, device=a.device)
    if not out.numel():
        return out
    plan, width = plan_of(indptr, indices.shape[0]), math.prod(a.shape[1:])
    columns = min(power(width), 128)
    _sddmm_kernel[(indptr.shape[0] - 1 + plan.num_segments, triton.cdiv(width, columns))](
        *(y.contiguous() for y in (indptr, indices, a, b)),
        out,
        *plan.items,
        F=width,
        OP=op,
        **plan.flags(),
        BE=min(1024 // columns, 32),
        BF=columns,
        num_warps=1,
    )
    return out
