"""Rows by index, copied as whole numbers, not values; backward is a sum in the order of the sorted rows."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.plan import bounded, power
from weft.kernels.triton.spmm import FLOATS, spmm

# rows are copied as numbers of the widest of these kinds that divides a value: views of it are aligned
_WORDS = {4: torch.int32, 2: torch.int16, 1: torch.int8}


@triton.jit
def _gather_kernel(x, rows, out, count, F: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr):
    """Copy row rows[i] of x [*, F] to row i of out [count, F]."""
    place = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    live = place < count
    source = tl.load(rows + place, mask=live, other=0).to(tl.int64)
    inside = live[:, None] & (f < F)[None, :]
    value = tl.load(x + source[:, None] * F + f[None, :], mask=inside, other=0)
    tl.store(out + place[:, None] * F + f[None, :], value, mask=inside)


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows]."""
    out = torch.empty((rows.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    size = math.prod(x.shape[1:]) * x.element_size()
    word = next(width for width in _WORDS if size % width == 0 and x.element_size() % width == 0)
    width = size // word
    columns = min(power(width), 256)
    block = max(1024 // columns, 1)
    source, target = (y.contiguous().view(-1).view(_WORDS[word]) for y in (x, out))
    _gather_kernel[(triton.cdiv(rows.shape[0], block), triton.cdiv(width, columns))](
        source, rows.contiguous(), target, rows.shape[0], F=width, BM=block, BF=columns, num_warps=2
    )
    return out


def gather_backward(grad: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Return the sum of the gradients of each row, the same bits every time."""
    if grad.dtype not in FLOATS:
        return reference.gather_backward(grad, rows, num_rows)
    ordered, positions = torch.sort(rows, stable=True)
    bounds = torch.arange(num_rows + 1, device=rows.device, dtype=ordered.dtype)
    indptr = torch.searchsorted(ordered, bounds)
    bounded(indptr, len(positions))  # how many rows are hubs would have to be waited for
    plain = (None, None, None, False, False, None, None, None)
    return spmm(indptr, positions, None, grad, *plain)


@triton.jit
def _gather_near_kernel(
    near, far, place, rows, out, count, F: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr
):
    """Copy rows [count] of far [n, F] to out [count, F], from near [m, F] where place [n] names one there."""
    at = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    live = at < count
    row = tl.load(rows + at, mask=live, other=0)
    held = tl.load(place + row, mask=live, other=0).to(tl.int64)
    inside = live[:, None] & (f < F)[None, :]
    here = (held >= 0)[:, None] & inside
    there = (held < 0)[:, None] & inside
    value = tl.load(near + held[:, None] * F + f[None, :], mask=here, other=0)
    other = tl.load(far + row[:, None] * F + f[None, :], mask=there, other=0)
    tl.store(out + at[:, None] * F + f[None, :], tl.where(here, value, other), mask=inside)


def gather_near(near: Tensor, far: Tensor, place: Tensor, rows: Tensor) -> Tensor:
    """Return far[rows]; near[place[row]] are the same where place is not negative.

    `far` is in pinned memory of the host, which the GPU reads over the link; all else lies on the GPU. Both
    are contiguous, of 32 bits a value or less.
    """
    out = torch.empty((rows.shape[0], *far.shape[1:]), dtype=far.dtype, device=rows.device)
    if not out.numel():
        return out
    width = math.prod(far.shape[1:])
    columns = min(power(width), 256)
    block = max(1024 // columns, 1)
    _gather_near_kernel[(triton.cdiv(rows.shape[0], block), triton.cdiv(width, columns))](
        near, far, place, rows.contiguous(), out, len(rows), F=width, BM=block, BF=columns, num_warps=4
    )
    return out


@triton.jit
def _far_kernel(
    far, rows, values, count, F: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    live = at < count
    row = tl.load(rows + at, mask=live, other=0)
    inside = live[:, None] & (f < F)[None, :]
    there = far + row[:, None] * F + f[None, :]
    here = values + at[:, None] * F + f[None, :]
    value = tl.load(there, mask=inside, other=0)
    if ADD:
        tl.store(there, value + tl.load(here, mask=inside, other=0), mask=inside)
    else:
        tl.store(here, value, mask=inside)


def gather_far(far: Tensor, rows: Tensor) -> Tensor:
    """Return far[rows] on the GPU of `rows`, which reads `far` itself, in pinned memory of the host."""
    out = torch.empty((rows.shape[0], *far.shape[1:]), dtype=far.dtype, device=rows.device)
    _over_the_link(far, rows, out, add=False)
    return out


def add_far(far: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values to far[rows] in pinned memory of the host; rows are distinct."""
    _over_the_link(far, rows, values.contiguous(), add=True)


def _over_the_link(far: Tensor, rows: Tensor, values: Tensor, *, add: bool) -> None:
    if not values.numel():
        return
    width = math.prod(far.shape[1:])
    columns = min(power(width), 256)
    block = max(1024 // columns, 1)
    _far_kernel[(triton.cdiv(rows.shape[0], block), triton.cdiv(width, columns))](
        far, rows.contiguous(), values, len(rows), F=width, ADD=add, BM=block, BF=columns, num_warps=4
    )
