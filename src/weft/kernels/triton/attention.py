"""Fused attention forward: scores, softmax, dropout and the weighted sum in one pass over each row's edges.

The softmax is taken online: a running maximum and sum, and the sum of values shrunk when the maximum rises. A
tile is edges × heads × dim, so a score is computed once for a head and not once for a column.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.draw import Stream, threshold
from weft.kernels import reference_attention as reference
from weft.kernels.reference import keep_scale
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.draw import keep_tile, key_of
from weft.kernels.triton.plan import HubPlan, item_of, plan_of, power
from weft.kernels.triton.softmax import online
from weft.kernels.triton.spmm import FLOATS

ADDITIVE: tl.constexpr = tl.constexpr(reference.ADDITIVE)
GATV2: tl.constexpr = tl.constexpr(reference.GATV2)
DOT: tl.constexpr = tl.constexpr(reference.DOT)
NARROW = 1 << 31
"""Elements of a matrix whose places fit into 32 bits."""


@triton.jit
def near_tile(near, row, h, d, KIND: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Give the program's own side of the scores: [heads] or [heads, dim]."""
    if KIND == ADDITIVE:
        tile = tl.load(near + row * H + h, mask=h < H, other=0.0).to(tl.float32)
    else:
        inside = (h < H)[:, None] & (d < D)[None, :]
        at = row * (H * D) + h[:, None] * D + d[None, :]
        tile = tl.load(near + at, mask=inside, other=0.0).to(tl.float32)
    return tile


@triton.jit
def edge_scores(
    far,
    other,
    own,
    a,
    edge,
    place,
    live,
    h,
    d,
    slope,
    KIND: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    STRIDE: tl.constexpr,
    HAS_EDGE: tl.constexpr,
):
    """Give the scores [edges, heads] of a tile, and what their gradients need.

    That is the slope of the leaky ReLU for additive scores [edges, heads] and GATv2 [edges, heads, dim], and
    the rows at the other end for dot products.
    """
    flat = live[:, None] & (h < H)[None, :]
    if KIND == ADDITIVE:
        score = tl.load(far + other[:, None] * STRIDE + h[None, :], mask=flat, other=0.0).to(tl.float32)
        score += own[None, :]
        if HAS_EDGE:
            score += tl.load(edge + place[:, None] * H + h[None, :], mask=flat, other=0.0).to(tl.float32)
        need = tl.where(score > 0, 1.0, slope)
        # with a slope of zero, 0 * -inf would make a masked edge NaN
        score = tl.where(score == float("-inf"), score, score * need)
    else:
        inside = flat[:, :, None] & (d < D)[None, None, :]
        at = h[None, :, None] * D + d[None, None, :]
        need = tl.load(far + other[:, None, None] * STRIDE + at, mask=inside, other=0.0).to(tl.float32)
        if KIND == DOT:
            score = tl.sum(need * own[None, :, :], 2) * slope
            if HAS_EDGE:
                score += tl.load(edge + place[:, None] * H + h[None, :], mask=flat, other=0.0).to(tl.float32)
        else:
            pre = need + own[None, :, :]
            if HAS_EDGE:
                term = tl.load(edge + place[:, None, None] * (H * D) + at, mask=inside, other=0.0)
                pre += term.to(tl.float32)
            need = tl.where(pre > 0, 1.0, slope)
            score = tl.sum(pre * need * a[None, :, :], 2)
    return tl.where(flat, score, float("-inf")), need


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
            share = share * shrink + tl.sum(tl.where(need == 1.0, powers, 0.0), 0)
        if DROPOUT:
            ids = place
            if HAS_IDS:
                ids = tl.load(edge_ids + place, mask=live, other=0)
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
    tl.store(total + row * H + h, mass, mask=alone)
    tl.store(out + row * (H * V) + at, result.to(out.dtype.element_ty), mask=inside & alone[:, None])
    if KEEP:
        store_kept(kept, row, result, positive / safe[:, None], share / safe, h, v, alone, H, V, PAD)


@triton.jit
def store_kept(
    kept, row, result, positive, share, h, v, alone, H: tl.constexpr, V: tl.constexpr, PAD: tl.constexpr
):
    """Store what `reference_attention.keeping_forward` keeps of a row: two padded tiles and a share."""
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


class Shape(NamedTuple):
    """The sizes that the kernels are compiled for."""

    heads: int
    dim: int
    value_dim: int
    edges: int
    """edges of a tile"""
    block: int
    """heads of a tile"""
    warps: int
    stages: int
    """tiles in flight"""

    def sizes(self) -> dict[str, int]:
        """Return the sizes under the names that the kernels give them."""
        return {
            "H": self.heads,
            "D": self.dim,
            "V": self.value_dim,
            "BE": self.edges,
            "BH": self.block,
            "BD": power(self.dim),
            "BV": power(self.value_dim),
            "STAGES": self.stages,
            "num_warps": self.warps,
        }


def shape_of(args: Arguments, *, tile: int = 1024, stages: int = 1) -> Shape:
    """Return the sizes for these inputs, with about `tile` elements a program; a fixed rule."""
    heads, value_dim = args.value.shape[1:]
    dim = 1 if args.kind == reference.ADDITIVE else args.src.shape[2]
    deepest = max(power(dim), power(value_dim))
    block = min(power(heads), max(256 // deepest, 1))
    edges = min(max(tile // (block * deepest), 2), 32)
    return Shape(heads, dim, value_dim, edges, block, 1 if block * deepest <= 256 else 4, stages)


def is_half(args: Arguments) -> bool:
    """Return whether values take 16 bits: loads of 16 bytes then need twice the edges to fill a warp."""
    return args.value.element_size() == 2


def pointers(args: Arguments) -> list[Tensor]:
    """Return (src, dst, a, value, edge, edge_ids) in row-major order; what is not given is never read."""
    given = (args.src, args.dst, args.a, args.value, args.edge, args.edge_ids)
    return [args.indptr if x is None else x.contiguous() for x in given]


def draws(args: Arguments) -> tuple[int | Tensor, int, float]:
    """Return the key of the draws, the bound below which one drops, and what the others are scaled by."""
    if args.dropout == 0.0:
        return 0, 0, 0.0
    assert args.clock is not None
    key = key_of(args.clock, Stream.ATTENTION, args.layer)
    return key, threshold(args.dropout), keep_scale(args.dropout)


def flags(args: Arguments, plan: HubPlan, *more: Tensor) -> dict[str, Any]:
    """Return which parts of the kernels these inputs need; `more` is what else is read by index."""
    read = (args.value, args.src, args.dst, *more)
    return {
        "KIND": args.kind,
        "HAS_EDGE": args.edge is not None,
        "HAS_IDS": args.edge_ids is not None,
        "DROPOUT": args.dropout > 0.0,
        "KEYED": args.dropout > 0.0 and args.clock is not None and not args.clock.is_cpu,
        "HUBS": plan.num_hubs > 0,
        "SEGMENT": plan.segment,
        "WIDE": max(each.numel() for each in read) >= NARROW,
    }


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
        plan.rows,
        plan.starts,
        plan.num_segments,
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
