"""Softmax over the edges of each row: one pass for the rows' maxima and sums, one that writes the edges."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.plan import HubPlan, item_of, merge_sums, plan_of, power


@triton.jit
def online(top, total, score):
    """Take scores [n, heads] into the running maximum and the running sum of exponentials [heads].

    Gives also the exponentials and the factor that brings older sums to the new maximum.
    """
    above = tl.maximum(top, tl.max(score, 0))
    # Where every score so far is −inf (masked edges, or none) the difference of two infinities would be NaN.
    base = tl.where(above == float("-inf"), 0.0, above)
    powers = tl.exp(score - base[None, :])
    shrink = tl.exp(top - base)
    return above, total * shrink + tl.sum(powers, 0), powers, shrink


@triton.jit
def _stats_kernel(
    indptr,
    scores,
    top,
    total,
    part_top,
    part_total,
    rows,
    starts,
    num_segments,
    H: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
):
    """Take the maximum and the sum of exponentials over the edges of a row.

    scores [E, H] in, top and total [num_dst, H] out; of hubs part_top and part_total [segments, H].
    """
    row, start, count, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    inside = h < H
    offsets = tl.arange(0, BE)
    high = tl.full([BH], float("-inf"), tl.float32)
    mass = tl.zeros([BH], tl.float32)
    for k in range(0, count, BE):
        live = (k + offsets < count)[:, None] & inside[None, :]
        edge = start + k + offsets
        score = tl.load(scores + edge[:, None] * H + h[None, :], mask=live, other=float("-inf"))
        high, mass, _, _ = online(high, mass, score)
    if HUBS:
        if segment:
            # In 64 bits: segments × heads pass 2^31 on graphs that a GPU holds.
            at = tl.program_id(0).to(tl.int64) * H + h
            tl.store(part_top + at, high, mask=inside)
            tl.store(part_total + at, mass, mask=inside)
    alone = inside
    if HUBS:
        alone = h < tl.where(degree <= SEGMENT, H, 0)
    tl.store(top + row * H + h, tl.where(high == float("-inf"), 0.0, high), mask=alone)
    # A row without edges has no mass; 1 keeps whoever divides by it from writing NaN.
    tl.store(total + row * H + h, tl.where(mass == 0.0, 1.0, mass), mask=alone)


@triton.jit
def _merge_kernel(
    part_top,
    part_total,
    firsts,
    hubs,
    top,
    total,
    H: tl.constexpr,
    BS: tl.constexpr,
    BH: tl.constexpr,
):
    """Merge the segments of a hub, part_top and part_total [segments, H], into its row of top and total.

    The segments of hub i are firsts[i] … firsts[i + 1], its row is hubs[i].
    """
    hub = tl.program_id(0)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    begin = tl.load(firsts + hub)
    count = (tl.load(firsts + hub + 1) - begin).to(tl.int32)
    row = tl.load(hubs + hub)
    offsets = tl.arange(0, BS)
    high = tl.full([BH], float("-inf"), tl.float32)
    mass = tl.zeros([BH], tl.float32)
    for k in range(0, count, BS):
        live = (k + offsets < count)[:, None] & (h < H)[None, :]
        at = (begin + k + offsets)[:, None] * H + h[None, :]
        tops = tl.load(part_top + at, mask=live, other=float("-inf"))
        above = tl.maximum(high, tl.max(tops, 0))
        base = tl.where(above == float("-inf"), 0.0, above)
        parts = tl.load(part_total + at, mask=live, other=0.0) * tl.exp(tops - base[None, :])
        mass = mass * tl.exp(high - base) + tl.sum(parts, 0)
        high = above
    tl.store(top + row * H + h, tl.where(high == float("-inf"), 0.0, high), mask=h < H)
    tl.store(total + row * H + h, tl.where(mass == 0.0, 1.0, mass), mask=h < H)


@triton.jit
def _write_kernel(
    indptr,
    scores,
    top,
    total,
    out,
    rows,
    starts,
    num_segments,
    H: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
):
    """Write out [E, H] = exp(scores − top) / total, with top and total [num_dst, H] of the edge's row."""
    row, start, count, _, _ = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    offsets = tl.arange(0, BE)
    high = tl.load(top + row * H + h, mask=h < H, other=0.0)[None, :]
    mass = tl.load(total + row * H + h, mask=h < H, other=1.0)[None, :]
    for k in range(0, count, BE):
        live = (k + offsets < count)[:, None] & (h < H)[None, :]
        at = (start + k + offsets)[:, None] * H + h[None, :]
        tl.store(out + at, tl.exp(tl.load(scores + at, mask=live, other=0.0) - high) / mass, mask=live)


def _shape(indptr: Tensor, scores: Tensor, plan: HubPlan) -> tuple[tuple[int, int], dict[str, int]]:
    heads = math.prod(scores.shape[1:])
    block = min(power(heads), 32)
    grid = (indptr.shape[0] - 1 + plan.num_segments, triton.cdiv(heads, block))
    # One warp a program: most rows have fewer edges than a warp has lanes, and hubs come in segments.
    options = {"H": heads, **plan.flags(), "BH": block, "num_warps": 1}
    return grid, options | {"BE": min(max(256 // block, 8), 64)}


def edge_softmax(indptr: Tensor, scores: Tensor) -> Tensor:
    """Return what `reference.edge_softmax` returns."""
    if scores.dtype != torch.float32:
        return reference.edge_softmax(indptr, scores)
    out = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    if not out.numel():
        return out
    indptr, scores = indptr.contiguous(), scores.contiguous()
    plan = plan_of(indptr, scores.shape[0])
    grid, options = _shape(indptr, scores, plan)
    heads = options["H"]
    top, total = scores.new_empty((2, indptr.shape[0] - 1, heads)).unbind()
    part_top, part_total = scores.new_empty((2, plan.num_segments, heads)).unbind()
    _stats_kernel[grid](indptr, scores, top, total, part_top, part_total, *plan.items, **options)
    if plan.num_hubs:
        parts = (part_top, part_total, plan.firsts, plan.hubs)
        block = options["BH"]
        _merge_kernel[(plan.num_hubs, grid[1])](*parts, top, total, H=heads, BS=16, BH=block, num_warps=1)
    _write_kernel[grid](indptr, scores, top, total, out, *plan.items, **options)
    return out


@triton.jit
def _dots_kernel(
    indptr,
    out,
    grad,
    total,
    partial,
    rows,
    starts,
    num_segments,
    H: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
):
    """Sum out · grad, both [E, H], over a row's edges: total [num_dst, H], of hubs partial [segments, H]."""
    row, start, count, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    inside = h < H
    offsets = tl.arange(0, BE)
    mass = tl.zeros([BE, BH], tl.float32)
    for k in range(0, count, BE):
        live = (k + offsets < count)[:, None] & inside[None, :]
        at = (start + k + offsets)[:, None] * H + h[None, :]
        mass += tl.load(out + at, mask=live, other=0.0) * tl.load(grad + at, mask=live, other=0.0)
    result = tl.sum(mass, 0)
    if HUBS:
        if segment:
            tl.store(partial + tl.program_id(0).to(tl.int64) * H + h, result, mask=inside)
    alone = inside
    if HUBS:
        alone = h < tl.where(degree <= SEGMENT, H, 0)
    tl.store(total + row * H + h, result, mask=alone)


@triton.jit
def _scores_kernel(
    indptr,
    out,
    grad,
    total,
    result,
    rows,
    starts,
    num_segments,
    H: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
):
    """Write result [E, H] = out · (grad − total), with total [num_dst, H] of the edge's row."""
    row, start, count, _, _ = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    offsets = tl.arange(0, BE)
    mass = tl.load(total + row * H + h, mask=h < H, other=0.0)[None, :]
    for k in range(0, count, BE):
        live = (k + offsets < count)[:, None] & (h < H)[None, :]
        at = (start + k + offsets)[:, None] * H + h[None, :]
        up = tl.load(grad + at, mask=live, other=0.0)
        tl.store(result + at, tl.load(out + at, mask=live, other=0.0) * (up - mass), mask=live)


def edge_softmax_backward(indptr: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    """Return what `reference.edge_softmax_backward` returns."""
    if out.dtype != torch.float32:
        return reference.edge_softmax_backward(indptr, out, grad)
    result = torch.empty(out.shape, dtype=out.dtype, device=out.device)
    if not out.numel():
        return result
    indptr, out, grad = indptr.contiguous(), out.contiguous(), grad.contiguous()
    plan = plan_of(indptr, out.shape[0])
    grid, options = _shape(indptr, out, plan)
    total = out.new_empty((indptr.shape[0] - 1, options["H"]))
    partial = out.new_empty((plan.num_segments, options["H"]))
    _dots_kernel[grid](indptr, out, grad, total, partial, *plan.items, **options)
    if plan.num_hubs:
        merge_sums(plan, partial, total, indptr)
    _scores_kernel[grid](indptr, out, grad, total, result, *plan.items, **options)
    return result
