"""Fused attention forward: scores, softmax, dropout and the weighted sum in one pass over each row's edges.

The softmax is taken online: a running maximum and sum, and the sum of values shrunk when the maximum rises.
Segments of hubs are merged the same way (`weft.graph.reductions` has the formula).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference_attention as reference
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.attention_tiles import (
    GATV2,
    draws,
    edge_scores,
    flags,
    is_half,
    near_tile,
    pointers,
    shape_of,
)
from weft.kernels.triton.draw import keep_tile
from weft.kernels.triton.plan import item_of, plan_of
from weft.kernels.triton.softmax import online
from weft.kernels.triton.spmm import FLOATS


@triton.jit(do_not_specialize=["key", "below"])
def _forward_kernel(
    indptr,
    indices,
    src,
    dst,
    a,
    value,
    edge,
    edge_ids,
    out,
    top,
    total,
    kept,
    part_out,
    part_top,
    part_total,
    part_kept,
    rows,
    starts,
    num_segments,
    slope,
    key,
    below,
    keep,
    KEEP: tl.constexpr,
    PAD: tl.constexpr,
    KIND: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    HAS_EDGE: tl.constexpr,
    HAS_IDS: tl.constexpr,
    DROPOUT: tl.constexpr,
    KEYED: tl.constexpr,
    HUBS: tl.constexpr,
    SEGMENT: tl.constexpr,
    WIDE: tl.constexpr,
    BE: tl.constexpr,
    BH: tl.constexpr,
    BD: tl.constexpr,
    BV: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Reduce the edges of a row, or of a segment of a hub.

    tensor      shape                      holds
    src, dst    [*, H] or [*, H, D]        the two sides of the scores; a [H, D] for GATv2
    value       [num_src, H, V]            read through indices
    edge        [E, H], GATv2 [E, H, D]    terms of the scores, in the order of the edges
    out         [num_dst, H, V]            out
    top, total  [num_dst, H]               out: maximum and sum of exponentials
    kept        [num_dst, 2 H PAD + H]     out, where KEEP: what backward needs no second pass for
    part_out    [segments, H, V]           out, of hubs: sums that are not divided yet; part_top and
                                           part_total [segments, H], part_kept [segments, H V + H]
    """
    if KEYED:
        key = tl.load(key)
    row, start, count, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    d = tl.arange(0, BD)
    v = tl.arange(0, BV)
    inside = (h < H)[:, None] & (v < V)[None, :]
    at = h[:, None] * V + v[None, :]
    offsets = tl.arange(0, BE)
    own = near_tile(dst, row, h, d, KIND, H, D)
    weights = own
    if KIND == GATV2:
        weights = near_tile(a, 0, h, d, KIND, H, D)
    high = tl.full([BH], float("-inf"), tl.float32)
    mass = tl.zeros([BH], tl.float32)
    result = tl.zeros([BH, BV], tl.float32)
    share = tl.zeros([BH], tl.float32)
    positive = tl.zeros([BH, BV], tl.float32)
    indices += start
    # Indices are one tile ahead: the loads of rows depend on them, and would else wait twice.
    following = tl.load(indices + offsets, mask=offsets < count, other=0)
    for k in tl.range(0, count, BE, num_stages=STAGES):
        live = k + offsets < count
        source = following
        following = tl.load(indices + k + BE + offsets, mask=k + BE + offsets < count, other=0)
        if WIDE:
            source = source.to(tl.int64)
        place = start + k + offsets
        rows_in = tl.load(
            value + source[:, None, None] * (H * V) + at[None, :, :],
            mask=live[:, None, None] & inside[None, :, :],
            other=0.0,
        ).to(tl.float32)
        score, need = edge_scores(
            src, source, own, weights, edge, place, live, h, d, slope, KIND, H, D, H * D, HAS_EDGE
        )
        high, mass, powers, shrink = online(high, mass, score)
        if KEEP:
            # The gradient of an additive score is one number on edges above zero and another below: with the
            # sums over those above, and over all, backward needs no second look at the edges.
            share = share * shrink + tl.sum(tl.where(need == 1.0, powers, 0.0), 0)
        if DROPOUT:
            ids = place
            if HAS_IDS:
                ids = tl.load(edge_ids + place, mask=live, other=0)
            # After the mass was counted: what is dropped are weights of the finished softmax, which do not
            # add up to 1 then, as in torch.
            powers *= keep_tile(key, ids, h, below, keep)
        result = result * shrink[:, None] + tl.sum(powers[:, :, None] * rows_in, 0)
        if KEEP:
            powers = tl.where(need == 1.0, powers, 0.0)
            positive = positive * shrink[:, None] + tl.sum(powers[:, :, None] * rows_in, 0)
    if HUBS:
        if segment:
            slot = tl.program_id(0).to(tl.int64)
            tl.store(part_top + slot * H + h, high, mask=h < H)
            tl.store(part_total + slot * H + h, mass, mask=h < H)
            # Not divided by the mass: segments are merged as sums, and a segment whose edges are all masked
            # has none.
            tl.store(part_out + slot * (H * V) + at, result, mask=inside)
            if KEEP:
                tl.store(part_kept + slot * (H * V + H) + at, positive, mask=inside)
                tl.store(part_kept + slot * (H * V + H) + H * V + h, share, mask=h < H)
    high = tl.where(high == float("-inf"), 0.0, high)
    safe = tl.where(mass == 0.0, 1.0, mass)
    result /= safe[:, None]
    alone = h < H
    if HUBS:
        alone = h < tl.where(degree <= SEGMENT, H, 0)
    tl.store(top + row * H + h, high, mask=alone)
    # The mass itself, 0 of a row without edges: its logarithm, −inf, is what a merge with other ranks needs.
    tl.store(total + row * H + h, mass, mask=alone)
    tl.store(out + row * (H * V) + at, result.to(out.dtype.element_ty), mask=inside & alone[:, None])
    if KEEP:
        store_kept(kept, row, result, positive / safe[:, None], share / safe, h, v, alone, H, V, PAD)


@triton.jit
def store_kept(
    kept, row, result, positive, share, h, v, alone, H: tl.constexpr, V: tl.constexpr, PAD: tl.constexpr
):
    """Store what `reference_attention.keeping_forward` keeps of a row: two padded tiles and a share.

    result and positive are [BH, BV], share [BH]; kept is [num_dst, 2 H PAD + H].
    """
    inside = alone[:, None] & (v < V)[None, :]
    spot = kept + row * (2 * H * PAD + H) + h[:, None] * PAD + v[None, :]
    tl.store(spot, result, mask=inside)
    tl.store(spot + H * PAD, positive, mask=inside)
    tl.store(kept + row * (2 * H * PAD + H) + 2 * H * PAD + h, share, mask=alone)


@triton.jit
def _merge_kernel(
    part_out,
    part_top,
    part_total,
    part_kept,
    firsts,
    hubs,
    out,
    top,
    total,
    kept,
    KEEP: tl.constexpr,
    PAD: tl.constexpr,
    H: tl.constexpr,
    V: tl.constexpr,
    BS: tl.constexpr,
    BH: tl.constexpr,
    BV: tl.constexpr,
):
    """Merge the segments of a hub: part_* [segments, ...] into its row of out, top, total and kept.

    The segments of hub i are firsts[i] … firsts[i + 1], its row is hubs[i].
    """
    hub = tl.program_id(0)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    v = tl.arange(0, BV)
    inside = (h < H)[:, None] & (v < V)[None, :]
    at = h[:, None] * V + v[None, :]
    begin = tl.load(firsts + hub)
    count = (tl.load(firsts + hub + 1) - begin).to(tl.int32)
    row = tl.load(hubs + hub)
    offsets = tl.arange(0, BS)
    high = tl.full([BH], float("-inf"), tl.float32)
    mass = tl.zeros([BH], tl.float32)
    result = tl.zeros([BH, BV], tl.float32)
    share = tl.zeros([BH], tl.float32)
    positive = tl.zeros([BH, BV], tl.float32)
    for k in range(0, count, BS):
        live = k + offsets < count
        slot = begin + k + offsets
        flat = live[:, None] & (h < H)[None, :]
        tops = tl.load(part_top + slot[:, None] * H + h[None, :], mask=flat, other=float("-inf"))
        sums = tl.load(part_total + slot[:, None] * H + h[None, :], mask=flat, other=0.0)
        parts = tl.load(
            part_out + slot[:, None, None] * (H * V) + at[None, :, :],
            mask=live[:, None, None] & inside[None, :, :],
            other=0.0,
        )
        above = tl.maximum(high, tl.max(tops, 0))
        base = tl.where(above == float("-inf"), 0.0, above)
        factor = tl.exp(tops - base[None, :])
        shrink = tl.exp(high - base)
        mass = mass * shrink + tl.sum(sums * factor, 0)
        result = result * shrink[:, None] + tl.sum(parts * factor[:, :, None], 0)
        if KEEP:
            spot = part_kept + slot[:, None] * (H * V + H) + H * V + h[None, :]
            share = share * shrink + tl.sum(tl.load(spot, mask=flat, other=0.0) * factor, 0)
            parts = tl.load(
                part_kept + slot[:, None, None] * (H * V + H) + at[None, :, :],
                mask=live[:, None, None] & inside[None, :, :],
                other=0.0,
            )
            positive = positive * shrink[:, None] + tl.sum(parts * factor[:, :, None], 0)
        high = above
    safe = tl.where(mass == 0.0, 1.0, mass)
    result /= safe[:, None]
    tl.store(top + row * H + h, tl.where(high == float("-inf"), 0.0, high), mask=h < H)
    tl.store(total + row * H + h, mass, mask=h < H)
    tl.store(out + row * (H * V) + at, result.to(out.dtype.element_ty), mask=inside)
    if KEEP:
        store_kept(kept, row, result, positive / safe[:, None], share / safe, h, v, h < H, H, V, PAD)


def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `reference_attention.forward` returns."""
    args = Arguments(*arguments)
    if args.value.dtype not in FLOATS:
        return reference.forward(*arguments)
    return _forward(args, None)


def keeping_forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `reference_attention.keeping_forward` returns; the padding of heads stays unwritten."""
    args = Arguments(*arguments)
    if args.value.dtype not in FLOATS:
        return reference.keeping_forward(*arguments)
    shape = (args.indptr.shape[0] - 1, reference.kept_width(*args.value.shape[1:]))
    kept = torch.empty(shape, dtype=torch.float32, device=args.value.device)
    return *_forward(args, kept), kept


def _forward(args: Arguments, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    num_rows, (heads, dim) = args.indptr.shape[0] - 1, args.value.shape[1:]
    out = torch.empty((num_rows, heads, dim), dtype=args.value.dtype, device=args.value.device)
    top = torch.empty((num_rows, heads), dtype=torch.float32, device=out.device)
    total = torch.empty_like(top)
    if not out.numel():
        return out, top.zero_(), total.zero_()
    plan = plan_of(args.indptr, args.indices.shape[0])
    keep = kept is not None
    shape = shape_of(args, tile=4096, stages=2) if is_half(args) else shape_of(args)
    part_out = out.new_empty((plan.num_segments, heads, dim), dtype=torch.float32)
    part_top, part_total = top.new_empty((2, plan.num_segments, heads)).unbind()
    part_kept = top.new_empty((plan.num_segments if keep else 0, heads * (dim + 1)))
    store = top if kept is None else kept
    keeping = {"KEEP": keep, "PAD": reference.padded_width(dim)}
    blocks = triton.cdiv(heads, shape.block)
    _forward_kernel[(num_rows + plan.num_segments, blocks)](
        args.indptr.contiguous(),
        args.indices.contiguous(),
        *pointers(args),
        out,
        top,
        total,
        store,
        part_out,
        part_top,
        part_total,
        part_kept,
        *plan.items,
        args.slope,
        *draws(args),
        **keeping,
        **flags(args, plan),
        **shape.sizes(),
    )
    if plan.num_hubs:
        sizes = shape.sizes()
        _merge_kernel[(plan.num_hubs, blocks)](
            part_out,
            part_top,
            part_total,
            part_kept,
            plan.firsts,
            plan.hubs,
            out,
            top,
            total,
            store,
            BS=shape.edges,
            **keeping,
            **{name: sizes[name] for name in ("H", "V", "BH", "BV", "num_warps")},
        )
    return out, top, total
