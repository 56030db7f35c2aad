"""Dropout by counter draws: the mask is drawn in registers and never stored."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.draw import threshold
from weft.kernels import reference
from weft.kernels.triton.draw import draw, key_of, row_key
from weft.kernels.triton.plan import power
from weft.kernels.triton.spmm import FLOATS


@triton.jit(do_not_specialize=["key", "below"])
def _dropout_kernel(
    x,
    ids,
    lanes,
    out,
    num_rows,
    key,
    below,
    scale,
    F: tl.constexpr,
    LANES: tl.constexpr,
    KEYED: tl.constexpr,
    BM: tl.constexpr,
    BF: tl.constexpr,
):
    """Drop or scale x [num_rows, F] into out, by draws of (ids, column), or of (ids, lanes) of whole rows."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    live = row < num_rows
    if KEYED:
        key = tl.load(key)
    keys = row_key(key, tl.load(ids + row, mask=live, other=0))
    if LANES:
        bits = draw(keys, tl.load(lanes + row, mask=live, other=0))[:, None]
    else:
        bits = draw(keys[:, None], f[None, :])
    at = row[:, None] * F + f[None, :]
    inside = live[:, None] & (f < F)[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale
    kept = tl.where(bits.to(tl.int64) >= below, value, 0.0)
    tl.store(out + at, kept.to(out.dtype.element_ty), mask=inside)


def dropout(
    x: Tensor, ids: Tensor, p: float, clock: Tensor, stream: int, layer: int, lanes: Tensor | None = None
) -> Tensor:
    """Return what `reference.dropout` returns."""
    if x.dtype not in FLOATS:
        return reference.dropout(x, ids, p, clock, stream, layer, lanes)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    key = key_of(clock, stream, layer)
    width = math.prod(x.shape[1:])
    columns = min(power(width), 128)
    rows = max(1024 // columns, 1)
    ids = ids.contiguous()
    _dropout_kernel[(triton.cdiv(x.shape[0], rows), triton.cdiv(width, columns))](
        x.contiguous(),
        ids,
        ids if lanes is None else lanes.contiguous(),
        out,
        x.shape[0],
        key,
        threshold(p),
        reference.keep_scale(p),
        F=width,
        LANES=lanes is not None,
        KEYED=isinstance(key, Tensor),
        BM=rows,
        BF=columns,
        num_warps=4,
    )
    return out
