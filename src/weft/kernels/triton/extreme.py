"""The largest or smallest value over the edges of each row and how many edges attain it; NaN beats all."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.plan import HubPlan, item_of, merge_sums, plan_of, power
from weft.kernels.triton.spmm import FLOATS


@triton.jit
def same(a, b):
    return (a == b) | ((a != a) & (b != b))


@triton.jit
def better(a, b):
    return (a > b) | ((a != a) & (b == b))


@triton.jit
def take(best, ties, value, count):
    """Give the larger of two values and how many attain it."""
    ahead = better(value, best)
    ties = tl.where(ahead, count, ties + tl.where(same(value, best), count, 0))
    return tl.where(ahead, value, best), ties


@triton.jit
def over_edges(value, count):
    """Give the largest value along axis 0, which stays, and the sum of the counts that go with it."""
    # tl.max passes over NaN, torch's max keeps it: whether there is one is asked beside it.
    bad = tl.max((value != value).to(tl.int32), 0, keep_dims=True) > 0
    top = tl.max(tl.where(value != value, float("-inf"), value), 0, keep_dims=True)
    top = tl.where(bad, float("nan"), top)
    return top, tl.sum(tl.where(same(value, top), count, 0), 0, keep_dims=True)


@triton.jit
def _extreme_kernel(
    indptr,
    indices,
    x,
    value,
    count,
    part_value,
    part_count,
    rows,
    starts,
    num_segments,
    sign,
    F: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BF: tl.constexpr,
):
    """Take the largest value, of sign · x, over the edges of a row, and count the edges that attain it.

    tensor      shape               holds
    x           [num_src, F]        read through indices
    value       [num_dst, F]        out; count [num_dst, F] int32
    part_value  [segments, F]       out, of hubs: those of each segment; part_count [segments, F]
    """
    row, start, length, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    inside = f < F
    offsets = tl.arange(0, BE)
    # A running best for each lane of edges, reduced once at the end: a reduction in every turn would cost
    # more than the loads.
    best = tl.full([BE, BF], float("-inf"), tl.float32)
    number = tl.zeros([BE, BF], tl.int32)
    for k in range(0, length, BE):
        live = k + offsets < length
        source = tl.load(indices + start + k + offsets, mask=live, other=0).to(tl.int64)
        live = live[:, None] & inside[None, :]
        new = tl.load(x + source[:, None] * F + f[None, :], mask=live, other=0.0).to(tl.float32) * sign
        new = tl.where(live, new, float("-inf"))
        best, number = take(best, number, new, live.to(tl.int32))
    top, ties = over_edges(best, number)
    top, ties = tl.reshape(top, [BF]), tl.reshape(ties, [BF])
    if HUBS:
        if segment:
            at = tl.program_id(0).to(tl.int64) * F + f
            tl.store(part_value + at, top, mask=inside)
            tl.store(part_count + at, ties, mask=inside)
    # sign is −1 for min: the least is the negated largest of negated values, and one kernel serves both.
    top = tl.where(degree > 0, top * sign, 0.0)
    alone = inside
    if HUBS:
        alone = f < tl.where(degree <= SEGMENT, F, 0)
    tl.store(value + row * F + f, top.to(value.dtype.element_ty), mask=alone)
    tl.store(count + row * F + f, ties, mask=alone)


@triton.jit
def _merge_kernel(
    part_value,
    part_count,
    firsts,
    hubs,
    value,
    count,
    sign,
    F: tl.constexpr,
    BS: tl.constexpr,
    BF: tl.constexpr,
):
    """Merge the segments of a hub, part_value and part_count [segments, F], into its row of value and count.

    The segments of hub i are firsts[i] … firsts[i + 1], its row is hubs[i].
    """
    hub = tl.program_id(0)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    inside = f < F
    begin = tl.load(firsts + hub)
    length = (tl.load(firsts + hub + 1) - begin).to(tl.int32)
    row = tl.load(hubs + hub)
    columns = tl.where(row >= 0, F, 0)  # none of a dead hub
    row = tl.maximum(row, 0)
    offsets = tl.arange(0, BS)
    best = tl.full([BS, BF], float("-inf"), part_value.dtype.element_ty)
    number = tl.zeros([BS, BF], tl.int32)
    for k in range(0, length, BS):
        live = (k + offsets < length)[:, None] & inside[None, :]
        at = (begin + k + offsets)[:, None] * F + f[None, :]
        new = tl.load(part_value + at, mask=live, other=float("-inf"))
        best, number = take(best, number, new, tl.load(part_count + at, mask=live, other=0))
    top, ties = over_edges(best, number)
    top, ties = tl.reshape(top, [BF]), tl.reshape(ties, [BF])
    tl.store(value + row * F + f, (top * sign).to(value.dtype.element_ty), mask=f < columns)
    tl.store(count + row * F + f, ties, mask=f < columns)


def merge_extremes(
    plan: HubPlan, part_value: Tensor, part_count: Tensor, value: Tensor, count: Tensor, *, maximum: bool
) -> None:
    """Merge the segments' extremes [num_segments, F], each times −1 for minima, into the hubs' rows."""
    width = part_value.shape[1]
    columns = min(power(width), 128)
    _merge_kernel[(plan.num_hubs, triton.cdiv(width, columns))](
        part_value,
        part_count,
        plan.firsts,
        plan.hubs,
        value,
        count,
        1.0 if maximum else -1.0,
        F=width,
        BS=8,
        BF=columns,
        num_warps=1,
    )


def extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    maximum: bool,
    t_indptr: Tensor | None = None,
    t_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `reference.extreme` returns."""
    if x.dtype not in FLOATS:
        return reference.extreme(indptr, indices, x, maximum)
    num_rows, width = indptr.shape[0] - 1, math.prod(x.shape[1:])
    value = torch.empty((num_rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
    count = torch.empty(value.shape, dtype=torch.int32, device=x.device)
    if not value.numel():
        return value, count
    plan = plan_of(indptr, indices.shape[0])
    part_value = value.new_empty((plan.num_segments, width), dtype=torch.float32)
    part_count = count.new_empty((plan.num_segments, width))
    columns, sign = min(power(width), 128), 1.0 if maximum else -1.0
    _extreme_kernel[(num_rows + plan.num_segments, triton.cdiv(width, columns))](
        indptr.contiguous(),
        indices.contiguous(),
        x.contiguous(),
        value,
        count,
        part_value,
        part_count,
        *plan.items,
        sign,
        F=width,
        **plan.flags(),
        BE=min(1024 // columns, 32),
        BF=columns,
        num_warps=1,
    )
    if plan.num_hubs:
        merge_extremes(plan, part_value, part_count, value, count, maximum=maximum)
    return value, count


@triton.jit
def _backward_kernel(
    indptr,
    indices,
    x,
    value,
    count,
    grad,
    out,
    partial,
    rows,
    starts,
    num_segments,
    F: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BF: tl.constexpr,
):
    """Sum over the outgoing edges of a source the shares of the rows whose extreme it attains.

    tensor      shape               holds
    indptr, indices                 the transposed CSR
    x           [num_src, F]        the source's own row
    value       [num_dst, F]        read through indices, as are count and grad
    out         [num_src, F]        out
    partial     [segments, F]       out, of hubs: float32 sums of each segment
    """
    row, start, length, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    inside = f < F
    offsets = tl.arange(0, BE)
    own = tl.load(x + row * F + f, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([BE, BF], tl.float32)
    for k in range(0, length, BE):
        live = k + offsets < length
        target = tl.load(indices + start + k + offsets, mask=live, other=0).to(tl.int64)
        at = target[:, None] * F + f[None, :]
        live = live[:, None] & inside[None, :]
        top = tl.load(value + at, mask=live, other=0.0).to(tl.float32)
        ties = tl.load(count + at, mask=live, other=1)
        up = tl.load(grad + at, mask=live, other=0.0).to(tl.float32)
        share = up / tl.maximum(ties, 1).to(tl.float32)
        total += tl.where(same(top, own[None, :]), share, 0.0)
    result = tl.sum(total, 0)
    if HUBS:
        if segment:
            tl.store(partial + tl.program_id(0).to(tl.int64) * F + f, result, mask=inside)
    alone = inside
    if HUBS:
        alone = f < tl.where(degree <= SEGMENT, F, 0)
    tl.store(out + row * F + f, result.to(out.dtype.element_ty), mask=alone)


def extreme_backward(
    t_indptr: Tensor, t_indices: Tensor, x: Tensor, value: Tensor, count: Tensor, grad: Tensor
) -> Tensor:
    """Return what `reference.extreme_backward` returns."""
    if x.dtype not in FLOATS:
        return reference.extreme_backward(t_indptr, t_indices, x, value, count, grad)
    num_rows, width = x.shape[0], math.prod(x.shape[1:])
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    plan = plan_of(t_indptr, t_indices.shape[0])
    partial = out.new_empty((plan.num_segments, width), dtype=torch.float32)
    columns = min(power(width), 128)
    _backward_kernel[(num_rows + plan.num_segments, triton.cdiv(width, columns))](
        *(y.contiguous() for y in (t_indptr, t_indices, x, value, count, grad)),
        out,
        partial,
        *plan.items,
        F=width,
        **plan.flags(),
        BE=min(512 // columns, 16),
        BF=columns,
        num_warps=1,
    )
    if plan.num_hubs:
        merge_sums(plan, partial, out.view(num_rows, width), t_indptr)
    return out
