"""Attention over incoming edges in plain PyTorch: definition, fallback and oracle of the fused form.

Everything here holds tensors of one row per edge, so it needs memory of edges x heads x dim; the fused form
does not. `forward` is differentiable by torch's own autograd; `backward` is the formula of the operator.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, pad

from weft.draw import Stream, threshold
from weft.kernels.reference import draw, edge_rows, keep_scale
from weft.kernels.registration import accumulator

ADDITIVE, GATV2, DOT = 0, 1, 2


class Arguments(NamedTuple):
    """The inputs of the operator, in the order of its schema."""

    kind: int
    """which score: ADDITIVE, GATV2 or DOT"""
    indptr: Tensor
    indices: Tensor
    src: Tensor
    """[num_src, H] or, for GATv2 and dot scores, [num_src, H, D]"""
    dst: Tensor
    """[num_dst, H] or [num_dst, H, D]"""
    a: Tensor | None
    """[H, D], GATv2 only"""
    value: Tensor
    """[num_src, H, Dv]"""
    edge: Tensor | None
    """[E, H], for GATv2 [E, H, D]"""
    slope: float
    """of the leaky ReLU; for dot scores the scale"""
    dropout: float
    edge_ids: Tensor | None
    clock: Tensor | None
    layer: int
    t_indptr: Tensor | None = None
    t_indices: Tensor | None = None
    t_edges: Tensor | None = None

    def wide(self) -> "Arguments":
        """Return the arguments in the type that sums are held in: float32 for the 16-bit types."""
        kind = accumulator(self.value.dtype)
        a = None if self.a is None else self.a.to(kind)
        edge = None if self.edge is None else self.edge.to(kind)
        return self._replace(
            src=self.src.to(kind), dst=self.dst.to(kind), a=a, value=self.value.to(kind), edge=edge
        )


def forward(*arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [num_dst, H, Dv], and of each row's scores the maximum and the sum of exponentials.

    A row without edges, or whose scores are all minus infinity, gives 0.
    """
    given = Arguments(*arguments)  # type: ignore[arg-type]
    args = given.wide()
    rows = edge_rows(args.indptr, args.indices.shape[0])
    scores, _ = _scores(args, rows)
    num_rows, heads = args.dst.shape[0], scores.shape[1]
    top = scores.new_full((num_rows, heads), -torch.inf)
    top.scatter_reduce_(0, rows[:, None].expand(-1, heads), scores.detach(), "amax")
    top = top.masked_fill(top == -torch.inf, 0.0)
    powers = torch.exp(scores - top[rows])
    total = scores.new_zeros((num_rows, heads)).index_add(0, rows, powers)
    alpha = powers / total.masked_fill(total == 0, 1.0)[rows]
    keep = _keep(args, heads, alpha.dtype)
    weight = alpha if keep is None else alpha * keep
    messages = weight[..., None] * args.value[args.indices]
    out = args.value.new_zeros((num_rows, *args.value.shape[1:])).index_add(0, rows, messages)
    return out.to(given.value.dtype), top, total


def backward(*arguments: object) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of (src, dst, a, value, edge); what was not given has an empty one.

    The arguments are those of `forward`, then the maximum and the sum of each row, `dot`, the gradient of the
    output and five flags: which gradients are wanted (here all are made). `dot` [num_dst, H], in the type of
    the maximum, is gradient · output of each row; None takes it from these edges. Where they are only some of
    those of a row, the maximum, the sum and `dot` are those of the whole row.
    """
    given = Arguments(*arguments[:16])  # type: ignore[arg-type]
    top, total, dot, grad, _ = arguments[16:]
    assert isinstance(top, Tensor)
    assert isinstance(total, Tensor)
    assert dot is None or isinstance(dot, Tensor)
    assert isinstance(grad, Tensor)
    args = given.wide()
    rows = edge_rows(args.indptr, args.indices.shape[0])
    alpha, weight, pre = _weights(args, rows, top, total)
    row_grad = grad.to(alpha.dtype)[rows]
    product = weight * (row_grad * args.value[args.indices]).sum(-1)
    d = torch.zeros_like(top).index_add(0, rows, product) if dot is None else dot
    d_score = product - alpha * d[rows]
    d_value = torch.zeros_like(args.value).index_add(0, args.indices, weight[..., None] * row_grad)
    grads = (*_score_gradients(args, rows, pre, d_score), d_value)
    d_src, d_dst, d_a, d_edge, d_value = (x.to(given.value.dtype) for x in grads)
    return d_src, d_dst, d_a, d_value, d_edge


def keeping_forward(*arguments: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `forward` returns for additive scores, and what it keeps for backward: see `kept_width`.

    With g the gradient of the output, D = <g, out> and P, q the sums of the weighted values and of alpha over
    the edges whose argument of the leaky ReLU is positive, d_dst = (1 - slope) (<g, P> - D q): backward need
    not look at the edges of a row.
    """
    given = Arguments(*arguments)  # type: ignore[arg-type]
    args = given.wide()
    out, top, total = forward(*args)
    rows = edge_rows(args.indptr, args.indices.shape[0])
    alpha, weight, pre = _weights(args, rows, top, total)
    alpha, weight = (x.masked_fill(pre <= 0, 0.0) for x in (alpha, weight))
    share = torch.zeros_like(top).index_add(0, rows, alpha)
    part = torch.zeros_like(out).index_add(0, rows, weight[..., None] * args.value[args.indices])
    room = (0, padded_width(out.shape[2]) - out.shape[2])
    kept = torch.cat([pad(out, room).flatten(1), pad(part, room).flatten(1), share], dim=1)
    return out.to(given.value.dtype), top, total, kept


def kept_width(heads: int, dim: int) -> int:
    """Return the columns of what is kept: out [H, dim] and P [H, dim] with padded heads, q [H]."""
    return 2 * heads * padded_width(dim) + heads


def padded_width(dim: int) -> int:
    """Return the values of a head in the native core: 4 or a multiple of 8."""
    return 4 if dim <= 4 else -(-dim // 8) * 8


def _weights(args: Arguments, rows: Tensor, top: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return alpha, alpha after dropout, and the argument of the leaky ReLU, from each row's two numbers."""
    scores, pre = _scores(args, rows)
    alpha = torch.exp(scores - top[rows]) / total.masked_fill(total == 0, 1.0)[rows]
    keep = _keep(args, scores.shape[1], alpha.dtype)
    return alpha, alpha if keep is None else alpha * keep, pre


def _scores(args: Arguments, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores [E, H] and the argument of the leaky ReLU."""
    if args.kind == DOT:
        scores = (args.src[args.indices] * args.dst[rows]).sum(-1) * args.slope
        scores = scores if args.edge is None else scores + args.edge
        return scores, scores
    pre = args.src[args.indices] + args.dst[rows]
    pre = pre if args.edge is None else pre + args.edge
    if args.kind == GATV2:
        assert args.a is not None
        return (leaky_relu(pre, args.slope) * args.a).sum(-1), pre
    # with a slope of zero, 0 * -inf would make a masked edge NaN
    return leaky_relu(pre, args.slope).masked_fill(pre == -torch.inf, -torch.inf), pre


def _score_gradients(
    args: Arguments, rows: Tensor, pre: Tensor, d_score: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of (src, dst, a, edge) from that of the scores."""
    none = d_score.new_empty(0)
    d_a = none
    if args.kind == DOT:
        d_edge, scaled = d_score, d_score[..., None] * args.slope
        d_src_edges, d_dst_edges = scaled * args.dst[rows], scaled * args.src[args.indices]
    elif args.kind == GATV2:
        assert args.a is not None
        d_pre = d_score[..., None] * _leaky_slope(pre, args.slope)
        d_a = (d_score[..., None] * leaky_relu(pre, args.slope)).sum(0)
        d_edge = d_src_edges = d_dst_edges = d_pre * args.a
    else:
        d_edge = d_src_edges = d_dst_edges = d_score * _leaky_slope(pre, args.slope)
    d_src = torch.zeros_like(args.src).index_add(0, args.indices, d_src_edges)
    d_dst = torch.zeros_like(args.dst).index_add(0, rows, d_dst_edges)
    return d_src, d_dst, d_a, none if args.edge is None else d_edge


def _leaky_slope(pre: Tensor, slope: float) -> Tensor:
    return torch.ones_like(pre).masked_fill(pre <= 0, slope)


def _keep(args: Arguments, heads: int, dtype: torch.dtype) -> Tensor | None:
    """Return 0 for a dropped (edge, head) and 1 / (1 - p) for the others, [E, H]; None without dropout."""
    if args.dropout == 0.0 or args.clock is None:
        return None
    ids = torch.arange(args.indices.shape[0], device=args.indices.device)
    ids = ids if args.edge_ids is None else args.edge_ids
    lanes = torch.arange(heads, device=ids.device)
    bits = draw(args.clock, Stream.ATTENTION, args.layer, ids[:, None], lanes)
    return (bits >= threshold(args.dropout)).to(dtype) * keep_scale(args.dropout)
