"""The first pass of attention backward, over the edges of each destination: its gradient and statistics.

With g the gradient of the output and p = weight · ⟨g, value⟩ of an edge: d = Σ p, and the gradient of the
destination's side is P − d · A; P and A sum p and alpha times the derivative of the score. Where forward kept
its sums, no edge is looked at again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference_attention as reference
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.attention_tiles import (
    ADDITIVE,
    GATV2,
    Wanted,
    draws,
    edge_scores,
    flags,
    near_tile,
    pointers,
    shape_of,
)
from weft.kernels.triton.draw import keep_tile
from weft.kernels.triton.plan import item_of, merge_sums, plan_of, power


@triton.jit(do_not_specialize=["key", "below"])
def _destination_kernel(
    indptr,
    indices,
    src,
    dst,
    a,
    value,
    edge,
    edge_ids,
    grad,
    top,
    total,
    dot,
    stat,
    result,
    part,
    rows,
    starts,
    num_segments,
    slope,
    key,
    below,
    keep,
    HAS_DOT: tl.constexpr,
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
    """Sum over the edges of each row what the destination's gradient is made of.

    tensor      shape                      holds
    src, dst    [*, H] or [*, H, D]        the two sides of the scores; a [H, D] for GATv2
    value       [num_src, H, V]            read through indices
    edge        [E, H], GATv2 [E, H, D]    terms of the scores, in the order of the edges
    grad        [num_dst, H, V]            that of the output
    top, total  [num_dst, H]               maximum and sum of exponentials of each row
    dot         [num_dst, H]               d, where it is known
    stat        [num_dst, 3, H]            out: additive score, level, d
    result      as dst                     out: P − d · A
    part        [segments, H + 2 H D]      out, of hubs: d, P and A of each segment
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
    up = tl.load(grad + row * (H * V) + at, mask=inside, other=0.0).to(tl.float32)
    mass = tl.load(total + row * H + h, mask=h < H, other=1.0)
    level = tl.load(top + row * H + h, mask=h < H, other=0.0) + tl.log(tl.where(mass == 0.0, 1.0, mass))
    dots = tl.zeros([BH], tl.float32)
    if KIND == ADDITIVE:
        by_product = tl.zeros([BH], tl.float32)
        by_alpha = tl.zeros([BH], tl.float32)
    else:
        by_product = tl.zeros([BH, BD], tl.float32)
        by_alpha = tl.zeros([BH, BD], tl.float32)
    indices += start
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
        alpha = tl.exp(score - level[None, :])
        product = alpha * tl.sum(rows_in * up[None, :, :], 2)
        if DROPOUT:
            ids = place
            if HAS_IDS:
                ids = tl.load(edge_ids + place, mask=live, other=0)
            product *= keep_tile(key, ids, h, below, keep)
        dots += tl.sum(product, 0)
        if KIND == ADDITIVE:
            by_product += tl.sum(product * need, 0)
            by_alpha += tl.sum(alpha * need, 0)
        else:
            by_product += tl.sum(product[:, :, None] * need, 0)
            by_alpha += tl.sum(alpha[:, :, None] * need, 0)
    if HAS_DOT:
        dots = tl.load(dot + row * H + h, mask=h < H, other=0.0)
    if HUBS:
        if segment:
            # of each segment: dots [H], by_product [H, D], by_alpha [H, D]
            slot = part + tl.program_id(0).to(tl.int64) * (H + 2 * H * D)
            tl.store(slot + h, dots, mask=h < H)
            if KIND == ADDITIVE:
                tl.store(slot + H + h, by_product, mask=h < H)
                tl.store(slot + 2 * H + h, by_alpha, mask=h < H)
            else:
                tile = h[:, None] * D + d[None, :]
                within = (h < H)[:, None] & (d < D)[None, :]
                tl.store(slot + H + tile, by_product, mask=within)
                tl.store(slot + H + H * D + tile, by_alpha, mask=within)
    alone = h < H
    if HUBS:
        # the level of a hub is written by its segments too: the same number
        alone = h < tl.where(degree <= SEGMENT, H, 0)
    if KIND == ADDITIVE:
        tl.store(stat + row * (3 * H) + h, own, mask=h < H)
        tl.store(result + row * H + h, by_product - dots * by_alpha, mask=alone)
    else:
        tile = h[:, None] * D + d[None, :]
        within = alone[:, None] & (d < D)[None, :]
        tl.store(result + row * (H * D) + tile, by_product - dots[:, None] * by_alpha, mask=within)
    tl.store(stat + row * (3 * H) + H + h, level, mask=h < H)
    tl.store(stat + row * (3 * H) + 2 * H + h, dots, mask=alone)


@triton.jit
def _kept_kernel(
    kept,
    grad,
    dst,
    top,
    total,
    stat,
    result,
    num_rows,
    slope,
    H: tl.constexpr,
    V: tl.constexpr,
    PAD: tl.constexpr,
    BM: tl.constexpr,
    BH: tl.constexpr,
    BV: tl.constexpr,
):
    """Make what `_destination_kernel` makes of what forward kept, row by row.

    tensor      shape                      holds
    kept        [num_dst, 2 H PAD + H]     Σ weight · value, the same over positive scores, both
                                           [H, PAD], and the share of these, [H]
    grad        [num_dst, H, V]            that of the output
    dst         [num_dst, H]               the destination's side of the scores
    top, total  [num_dst, H]               maximum and sum of exponentials of each row
    stat        [num_dst, 3, H]            out: additive score, level, d
    result      [num_dst, H]               out: the gradient of dst
    """
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    v = tl.arange(0, BV)
    flat = (row < num_rows)[:, None] & (h < H)[None, :]
    inside = flat[:, :, None] & (v < V)[None, None, :]
    held = kept + row[:, None, None] * (2 * H * PAD + H) + h[None, :, None] * PAD + v[None, None, :]
    spot = grad + row[:, None, None] * (H * V) + h[None, :, None] * V + v[None, None, :]
    up = tl.load(spot, mask=inside, other=0.0).to(tl.float32)
    dots = tl.sum(up * tl.load(held, mask=inside, other=0.0), 2)
    parts = tl.sum(up * tl.load(held + H * PAD, mask=inside, other=0.0), 2)
    shares = kept + row[:, None] * (2 * H * PAD + H) + 2 * H * PAD + h[None, :]
    at = row[:, None] * H + h[None, :]
    d_dst = (1.0 - slope) * (parts - dots * tl.load(shares, mask=flat, other=0.0))
    tl.store(result + at, d_dst, mask=flat)
    mass = tl.load(total + at, mask=flat, other=1.0)
    level = tl.load(top + at, mask=flat, other=0.0) + tl.log(tl.where(mass == 0.0, 1.0, mass))
    to = stat + row[:, None] * (3 * H) + h[None, :]
    tl.store(to, tl.load(dst + at, mask=flat, other=0.0).to(tl.float32), mask=flat)
    tl.store(to + H, level, mask=flat)
    tl.store(to + 2 * H, dots, mask=flat)


def to_destinations(
    args: Arguments, wanted: Wanted, grad: Tensor, top: Tensor, total: Tensor, dot: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return of each destination and head (additive score, level, d) [num_dst, 3, H], and its gradient.

    The level is the logarithm of the sum of exponentials; the gradient lacks GATv2's a and dot's scale. `dot`
    is d where it is given.
    """
    num_rows, heads = top.shape
    stat = grad.new_empty((num_rows, 3, heads), dtype=torch.float32)
    result = torch.empty(args.dst.shape, dtype=torch.float32, device=grad.device)
    if not num_rows:
        return stat, result
    if not (wanted.src or wanted.dst or wanted.a or wanted.edge):
        if args.kind == reference.ADDITIVE:
            stat[:, 0] = args.dst
        stat[:, 1] = top + torch.where(total == 0, 1.0, total).log()
        return stat, result
    shape, plan = shape_of(args), plan_of(args.indptr, args.indices.shape[0])
    depth = heads * shape.dim
    part = stat.new_empty((plan.num_segments, heads + 2 * depth))
    _destination_kernel[(num_rows + plan.num_segments, triton.cdiv(heads, shape.block))](
        args.indptr.contiguous(),
        args.indices.contiguous(),
        *pointers(args),
        grad,
        top.contiguous(),
        total.contiguous(),
        top if dot is None else dot.contiguous(),
        stat,
        result,
        part,
        *plan.items,
        args.slope,
        *draws(args),
        HAS_DOT=dot is not None,
        **flags(args, plan),
        **shape.sizes(),
    )
    if plan.num_hubs:
        merged = stat.new_empty((plan.num_hubs, part.shape[1]))
        merge_sums(plan, part, merged)
        dots = merged[:, :heads] if dot is None else dot[plan.hubs]
        by_product, by_alpha = merged[:, heads:].reshape(-1, 2, heads, shape.dim).unbind(1)
        stat[:, 2].index_copy_(0, plan.hubs, dots)
        hubs = by_product - dots[..., None] * by_alpha
        result.index_copy_(0, plan.hubs, hubs.reshape(-1, *result.shape[1:]))
    return stat, result


def from_kept(
    args: Arguments, grad: Tensor, top: Tensor, total: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what `to_destinations` returns, without looking at the edges."""
    num_rows, heads, value_dim = grad.shape
    stat = grad.new_empty((num_rows, 3, heads), dtype=torch.float32)
    result = torch.empty(args.dst.shape, dtype=torch.float32, device=grad.device)
    shape = shape_of(args)
    if stat.numel():
        _kept_kernel[(triton.cdiv(num_rows, shape.edges), triton.cdiv(heads, shape.block))](
            *(x.contiguous() for x in (kept, grad, args.dst, top, total)),
            stat,
            result,
            num_rows,
            args.slope,
            H=heads,
            V=value_dim,
            PAD=reference.padded_width(value_dim),
            BM=shape.edges,
            BH=shape.block,
            BV=power(value_dim),
            num_warps=shape.warps,
        )
    return stat, result
