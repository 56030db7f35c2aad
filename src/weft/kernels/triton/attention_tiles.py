"""What the passes of fused attention share: the scores of a tile of edges, and what kernels are told.

A tile is edges × heads × dim, so a score is computed once for a head and not once for a column.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from weft.draw import Stream, threshold
from weft.kernels import reference_attention as reference
from weft.kernels.reference import keep_scale
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.draw import key_of
from weft.kernels.triton.plan import HubPlan, power

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


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    src: bool
    dst: bool
    a: bool
    value: bool
    edge: bool


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
        **plan.flags(),
        "WIDE": max(each.numel() for each in read) >= NARROW,
    }
