"""Fused attention: scores, softmax over the incoming edges of each row, dropout and the weighted sum in one operator.

Three scores share the rest: additive (GAT), GATv2 and dot product. Rows of the CSR are destinations v, `indices` are
source rows u. With alpha = softmax over the edges of a row, separately for each head,

    out[v, h] = sum over edges e = (u, v) of keep[e, h] / (1 - p) * alpha[e, h] * value[u, h]

where keep is a counter draw of (edge id, head), so that it needs no memory and does not depend on the layout.
"""

import torch
from torch import Tensor

from weft.errors import InputError
from weft.kernels import reference_attention as reference


def attention(
    indptr: Tensor,
    indices: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    value: Tensor,
    negative_slope: float = 0.2,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Return GAT's attention, [num_dst, H, D]: the score of an edge is leaky_relu(score_src[u] + score_dst[v] + edge[e]).

    score_src [num_src, H], score_dst [num_dst, H], value [num_src, H, D], edge [E, H] or None; a term of minus
    infinity masks its edge. `dropout` zeroes attention weights by draws of (edge id, head); `edge_ids` defaults to the
    position of the edge, `clock` (seed, epoch, step) to a fresh one from torch's generator. `transposed` saves building
    the transposed CSR in backward.
    """
    rows = reference.edge_rows(indptr, indices.numel())
    scores = reference.attention_scores(*_wide(score_src, score_dst), indices, rows, negative_slope, edge)
    return _finish(scores, value, indptr, indices, rows, dropout, edge_ids, clock, layer)


def attention_gatv2(
    indptr: Tensor,
    indices: Tensor,
    src: Tensor,
    dst: Tensor,
    a: Tensor,
    value: Tensor,
    negative_slope: float = 0.2,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Return GATv2's attention, [num_dst, H, Dv]: the score of an edge is <a, leaky_relu(src[u] + dst[v] + edge[e])>.

    src [num_src, H, D], dst [num_dst, H, D], a [H, D], value [num_src, H, Dv], edge [E, H, D] or None; the other
    arguments are those of `attention`.
    """
    rows = reference.edge_rows(indptr, indices.numel())
    scores = reference.gatv2_scores(*_wide(src, dst, a), indices, rows, negative_slope, edge)
    return _finish(scores, value, indptr, indices, rows, dropout, edge_ids, clock, layer)


def attention_dot(
    indptr: Tensor,
    indices: Tensor,
    key: Tensor,
    query: Tensor,
    value: Tensor,
    scale: float = 1.0,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Return dot-product attention, [num_dst, H, Dv]: the score of an edge is scale * <key[u], query[v]> + edge[e].

    key [num_src, H, D], query [num_dst, H, D], value [num_src, H, Dv], edge [E, H] or None; the other arguments are
    those of `attention`.
    """
    rows = reference.edge_rows(indptr, indices.numel())
    scores = reference.dot_scores(*_wide(key, query), indices, rows, scale, edge)
    return _finish(scores, value, indptr, indices, rows, dropout, edge_ids, clock, layer)


def _finish(
    scores: Tensor,
    value: Tensor,
    indptr: Tensor,
    indices: Tensor,
    rows: Tensor,
    dropout: float,
    edge_ids: Tensor | None,
    clock: Tensor | None,
    layer: int,
) -> Tensor:
    if not 0.0 <= dropout <= 1.0:
        raise InputError(f"dropout must be between 0 and 1, got {dropout}")
    keep = None
    if dropout > 0.0:
        ids = torch.arange(indices.numel(), device=indices.device) if edge_ids is None else edge_ids.long()
        now = torch.randint(0, 2**62, (3,)) if clock is None else clock
        keep = reference.keep_factors(ids, scores.shape[1], dropout, now, layer, scores.dtype)
    out = reference.attend(scores, *_wide(value), indices, rows, indptr.numel() - 1, keep)
    return out.to(value.dtype)


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the type that sums are held in: float32 for the 16-bit ones."""
    return tuple(x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in tensors)
