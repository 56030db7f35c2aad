"""Fused attention backward: the weights are computed again from each row's maximum and sum.

Two passes, each reading one row an edge. On the CSR of the destinations, with g the gradient of the output
and p = weight · ⟨g, value⟩ of an edge: d = Σ p, and the gradient of the destination's side is P − d · A;
P and A sum p and alpha times the derivative of the score. On the transposed CSR the gradients of values, of
the source side and of edge terms follow, with d known. Where the edges are only some of those of a row, d is
given. Nothing of the size of the edges is stored unless it is the gradient of the edge term.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels import reference_attention as reference
from weft.kernels.csr import transposed_or_built
from weft.kernels.native_attention import reference_backward, reference_keeping_backward
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.attention import (
    ADDITIVE,
    DOT,
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
from weft.kernels.triton.plan import item_of, merge_sums, plan_of, power
from weft.kernels.triton.spmm import FLOATS


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


@triton.jit(do_not_specialize=["key", "below"])
def _source_kernel(
    indptr,
    indices,
    edges,
    src,
    dst,
    a,
    value,
    edge,
    edge_ids,
    grad,
    stat,
    d_value,
    d_src,
    d_edge,
    part_value,
    part_src,
    rows,
    starts,
    num_segments,
    slope,
    key,
    below,
    keep,
    KIND: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    WANT_VALUE: tl.constexpr,
    WANT_SRC: tl.constexpr,
    WANT_EDGE: tl.constexpr,
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
    if KEYED:
        key = tl.load(key)
    row, start, count, degree, segment = item_of(indptr, rows, starts, num_segments, SEGMENT, HUBS)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    d = tl.arange(0, BD)
    v = tl.arange(0, BV)
    inside = (h < H)[:, None] & (v < V)[None, :]
    at = h[:, None] * V + v[None, :]
    offsets = tl.arange(0, BE)
    own = near_tile(src, row, h, d, KIND, H, D)
    weights = own
    if KIND == GATV2:
        weights = near_tile(a, 0, h, d, KIND, H, D)
    carried = tl.load(value + row * (H * V) + at, mask=inside, other=0.0).to(tl.float32)
    to_value = tl.zeros([BH, BV], tl.float32)
    if KIND == ADDITIVE:
        to_src = tl.zeros([BH], tl.float32)
    else:
        to_src = tl.zeros([BH, BD], tl.float32)
    indices += start
    following = tl.load(indices + offsets, mask=offsets < count, other=0)
    for k in tl.range(0, count, BE, num_stages=STAGES):
        live = k + offsets < count
        target = following
        following = tl.load(indices + k + BE + offsets, mask=k + BE + offsets < count, other=0)
        if WIDE:
            target = target.to(tl.int64)
        up = tl.load(
            grad + target[:, None, None] * (H * V) + at[None, :, :],
            mask=live[:, None, None] & inside[None, :, :],
            other=0.0,
        ).to(tl.float32)
        place = start + k + offsets
        if HAS_EDGE or DROPOUT or WANT_EDGE:
            place = tl.load(edges + place, mask=live, other=0).to(tl.int64)
        if KIND == ADDITIVE:
            score, need = edge_scores(
                stat, target, own, weights, edge, place, live, h, d, slope, KIND, H, D, 3 * H, HAS_EDGE
            )
        else:
            score, need = edge_scores(
                dst, target, own, weights, edge, place, live, h, d, slope, KIND, H, D, H * D, HAS_EDGE
            )
        flat = live[:, None] & (h < H)[None, :]
        stats = stat + target[:, None] * (3 * H) + h[None, :]
        alpha = tl.exp(score - tl.load(stats + H, mask=flat, other=0.0))
        weight = alpha
        if DROPOUT:
            ids = place
            if HAS_IDS:
                ids = tl.load(edge_ids + place, mask=live, other=0)
            weight = alpha * keep_tile(key, ids, h, below, keep)
        if WANT_VALUE:
            to_value += tl.sum(weight[:, :, None] * up, 0)
        if WANT_SRC or WANT_EDGE:
            product = weight * tl.sum(up * carried[None, :, :], 2)
            d_score = product - alpha * tl.load(stats + 2 * H, mask=flat, other=0.0)
            if KIND == ADDITIVE:
                d_score *= need
                if WANT_SRC:
                    to_src += tl.sum(d_score, 0)
                if WANT_EDGE:
                    tl.store(d_edge + place[:, None] * H + h[None, :], d_score, mask=flat)
            else:
                if WANT_SRC:
                    to_src += tl.sum(d_score[:, :, None] * need, 0)
                if WANT_EDGE:
                    if KIND == DOT:
                        tl.store(d_edge + place[:, None] * H + h[None, :], d_score, mask=flat)
                    else:
                        tile = h[None, :, None] * D + d[None, None, :]
                        within = flat[:, :, None] & (d < D)[None, None, :]
                        spot = d_edge + place[:, None, None] * (H * D) + tile
                        tl.store(spot, d_score[:, :, None] * need, mask=within)
    alone = h < H
    if HUBS:
        alone = h < tl.where(degree <= SEGMENT, H, 0)
    slot = tl.program_id(0).to(tl.int64)
    if WANT_VALUE:
        if HUBS:
            if segment:
                tl.store(part_value + slot * (H * V) + at, to_value, mask=inside)
        spot = d_value + row * (H * V) + at
        tl.store(spot, to_value.to(d_value.dtype.element_ty), mask=inside & alone[:, None])
    if WANT_SRC:
        if KIND == ADDITIVE:
            if HUBS:
                if segment:
                    tl.store(part_src + slot * H + h, to_src, mask=h < H)
            tl.store(d_src + row * H + h, to_src, mask=alone)
        else:
            tile = h[:, None] * D + d[None, :]
            if HUBS:
                if segment:
                    within = (h < H)[:, None] & (d < D)[None, :]
                    tl.store(part_src + slot * (H * D) + tile, to_src, mask=within)
            tl.store(d_src + row * (H * D) + tile, to_src, mask=alone[:, None] & (d < D)[None, :])


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


class _Wanted(NamedTuple):
    src: bool
    dst: bool
    a: bool
    value: bool
    edge: bool


def backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `native_attention.reference_backward` returns."""
    if Arguments(*arguments[:16]).value.dtype not in FLOATS:
        return reference_backward(*arguments)
    top, total, dot, grad, wanted = arguments[16:]
    return _backward(Arguments(*arguments[:16]), top, total, None, grad, wanted, dot=dot)


def keeping_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `backward` returns, from what `keeping_forward` kept: one pass over the edges, not two."""
    if Arguments(*arguments[:16]).value.dtype not in FLOATS:
        return reference_keeping_backward(*arguments)
    top, total, kept, grad, wanted = arguments[16:]
    return _backward(Arguments(*arguments[:16]), top, total, kept, grad, wanted)


def _backward(
    args: Arguments,
    top: Tensor,
    total: Tensor,
    kept: Tensor | None,
    grad: Tensor,
    flagged: list[bool],
    *,
    dot: Tensor | None = None,
) -> tuple[Tensor, ...]:
    wanted = _Wanted(*(bool(want and x is not None) for x, want in zip(_inputs(args), flagged)))
    grad = grad.to(args.value.dtype).contiguous()
    if kept is None:
        stat, near = _destinations(args, wanted, grad, top, total, dot)
    else:
        stat, near = _from_kept(args, grad, top, total, kept)
    value, far, term = _sources(args, wanted, grad, stat)
    return _finished(args, wanted, value, far, near, term)


def _inputs(args: Arguments) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    return args.src, args.dst, args.a, args.value, args.edge


def _destinations(
    args: Arguments, wanted: _Wanted, grad: Tensor, top: Tensor, total: Tensor, dot: Tensor | None
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
        plan.rows,
        plan.starts,
        plan.num_segments,
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


def _from_kept(
    args: Arguments, grad: Tensor, top: Tensor, total: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what `_destinations` returns, without looking at the edges."""
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


def _sources(
    args: Arguments, wanted: _Wanted, grad: Tensor, stat: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of values, sources and edge terms; the last two lack GATv2's a and dot's scale."""
    want_src, want_edge = wanted.src or wanted.a, wanted.edge or (wanted.a and args.edge is not None)
    if not (wanted.value or want_src or want_edge):
        return None, None, None
    num_rows, heads = args.value.shape[:2]
    held = (args.t_indptr, args.t_indices, args.t_edges)
    t_indptr, t_indices, t_edges = transposed_or_built(held, args.indptr, args.indices, num_rows)
    plan = plan_of(t_indptr, t_indices.shape[0])
    shape = shape_of(args, tile=2048 if is_half(args) else 1024, stages=2)
    empty = stat.new_empty(0)
    value = (
        torch.empty(args.value.shape, dtype=args.value.dtype, device=grad.device) if wanted.value else empty
    )
    far = torch.empty(args.src.shape, dtype=torch.float32, device=grad.device) if want_src else empty
    like = args.edge if want_edge and args.edge is not None else empty
    # zeros: edges that belong to no row, as padding has them, are never written
    term = torch.zeros(like.shape, dtype=torch.float32, device=grad.device)
    parts = [stat.new_empty((plan.num_segments, y[0].numel() if y.shape[0] else 0)) for y in (value, far)]
    if num_rows and heads:
        _source_kernel[(num_rows + plan.num_segments, triton.cdiv(heads, shape.block))](
            t_indptr.contiguous(),
            t_indices.contiguous(),
            t_indices if t_edges is None else t_edges.contiguous(),
            *pointers(args),
            grad,
            stat,
            value,
            far,
            term,
            *parts,
            plan.rows,
            plan.starts,
            plan.num_segments,
            args.slope,
            *draws(args),
            WANT_VALUE=wanted.value,
            WANT_SRC=want_src,
            WANT_EDGE=want_edge,
            **flags(args, plan, grad, stat),
            **shape.sizes(),
        )
    for made, part in ((value, parts[0]), (far, parts[1])):
        if plan.num_hubs and made.numel():
            merge_sums(plan, part, made.view(num_rows, -1), t_indptr)
    return value if wanted.value else None, far if want_src else None, term if want_edge else None


def _finished(
    args: Arguments,
    wanted: _Wanted,
    value: Tensor | None,
    far: Tensor | None,
    near: Tensor,
    term: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the gradients of (src, dst, a, value, edge), empty where they are not wanted."""
    factor: Tensor | float = 1.0
    d_a = None
    if args.kind == reference.GATV2:
        assert args.a is not None
        factor = args.a.float()
        if wanted.a:
            # leaky(x) is x times its slope, so the sum over edges falls apart into sums over nodes
            pairs = [(args.src, far), (args.dst, near), (args.edge, term)]
            d_a = sum((x.float() * y).sum(0) for x, y in pairs if x is not None and y is not None)
    elif args.kind == reference.DOT:
        factor = args.slope
    plain = args.kind == reference.ADDITIVE
    d_src, d_dst = (x if x is None or plain else x.mul_(factor) for x in (far, near))
    d_edge = term.mul_(factor) if term is not None and args.kind == reference.GATV2 else term
    made = (d_src, d_dst, d_a, value, d_edge)
    return tuple(
        x.to(args.value.dtype) if want and isinstance(x, Tensor) else args.value.new_empty(0)
        for x, want in zip(made, wanted)
    )
