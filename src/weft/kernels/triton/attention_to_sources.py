"""The second pass of attention backward, over the outgoing edges of each source."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.csr import transposed_or_built
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.attention_tiles import (
    ADDITIVE,
    DOT,
    GATV2,
    Wanted,
    draws,
    edge_scores,
    flags,
    is_half,
    near_tile,
    pointers,
    shape_of,
)
from weft.kernels.triton.draw import keep_tile
from weft.kernels.triton.plan import item_of, merge_sums, plan_of


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
    """Sum over the outgoing edges of each row the gradients of its value and its side of the scores.

    tensor      shape                      holds
    indptr, indices, edges                 the transposed CSR: edges are places in the forward order
    src, dst    [*, H] or [*, H, D]        the two sides of the scores; a [H, D] for GATv2
    value       [num_src, H, V]            the rows themselves; grad [num_dst, H, V] is read through indices
    stat        [num_dst, 3, H]            additive score, level, d: of the first pass
    d_value     as value                   out
    d_src       as src                     out, without GATv2's a and dot's scale
    d_edge      as edge                    out, one row per edge in the forward order
    part_value  [segments, H V]            out, of hubs: sums of each segment; part_src [segments, H D]
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


def to_sources(
    args: Arguments, wanted: Wanted, grad: Tensor, stat: Tensor
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
            *plan.items,
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
