"""Attention over incoming edges in plain PyTorch: the definition, the fallback and the oracle of the fused kernels.

Everything here holds tensors of one row an edge, so it needs memory of edges x heads x dim; the fused form does not.
All functions run on any device and are differentiable by torch's own autograd.
"""

import torch
from torch import Tensor

from weft.draw import GOLDEN32, GOLDEN64, Stream, threshold

_LOW32 = 0xFFFFFFFF


def _signed(value: int) -> int:
    """Return the int64 with the same low 64 bits: torch has no full support for uint64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def attention_scores(
    src: Tensor, dst: Tensor, indices: Tensor, rows: Tensor, negative_slope: float, edge: Tensor | None
) -> Tensor:
    """Return leaky_relu(src[u] + dst[v] + edge[e]), [E, H]; an edge term of minus infinity masks its edge."""
    pre = src[indices] + dst[rows]
    if edge is not None:
        pre = pre + edge
    # With a slope of zero, 0 * -inf would make a masked edge NaN.
    return torch.nn.functional.leaky_relu(pre, negative_slope).masked_fill(pre == -torch.inf, -torch.inf)


def gatv2_scores(
    src: Tensor,
    dst: Tensor,
    a: Tensor,
    indices: Tensor,
    rows: Tensor,
    negative_slope: float,
    edge: Tensor | None,
) -> Tensor:
    """Return <a, leaky_relu(src[u] + dst[v] + edge[e])>, [E, H]."""
    pre = src[indices] + dst[rows]
    if edge is not None:
        pre = pre + edge
    return (torch.nn.functional.leaky_relu(pre, negative_slope) * a).sum(-1)


def dot_scores(
    key: Tensor, query: Tensor, indices: Tensor, rows: Tensor, scale: float, edge: Tensor | None
) -> Tensor:
    """Return scale * <key[u], query[v]> + edge[e], [E, H]."""
    scores = (key[indices] * query[rows]).sum(-1) * scale
    return scores if edge is None else scores + edge


def edge_rows(indptr: Tensor, num_edges: int) -> Tensor:
    """Return the row of each edge, [E] int64."""
    rows = torch.arange(indptr.numel() - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=num_edges)


def attend(
    scores: Tensor, value: Tensor, indices: Tensor, rows: Tensor, num_rows: int, keep: Tensor | None
) -> Tensor:
    """Return sum over incoming edges of softmax(scores) * keep * value[u], [num_rows, H, D]; empty rows give 0.

    scores [E, H]; keep [E, H] is 0 for a dropped edge and 1 / (1 - p) for the others. A row whose scores are all
    minus infinity gives 0, and so do its gradients.
    """
    heads = scores.shape[1]
    maximum = scores.new_full((num_rows, heads), -torch.inf)
    maximum.scatter_reduce_(0, rows[:, None].expand(-1, heads), scores.detach(), "amax")
    maximum = maximum.masked_fill(maximum == -torch.inf, 0.0)
    weight = torch.exp(scores - maximum[rows])
    total = scores.new_zeros((num_rows, heads)).index_add(0, rows, weight)
    alpha = weight / total.masked_fill(total == 0, 1.0)[rows]
    if keep is not None:
        alpha = alpha * keep
    messages = alpha[..., None] * value[indices]
    return value.new_zeros((num_rows, *value.shape[1:])).index_add(0, rows, messages)


def keep_factors(
    edge_ids: Tensor, heads: int, dropout: float, clock: Tensor, layer: int, dtype: torch.dtype
) -> Tensor:
    """Return 0 where the draw of (edge id, head) is below the threshold of `dropout`, else 1 / (1 - p); [E, heads]."""
    row = _mix64(_fold(clock, layer).to(edge_ids.device) + _signed(GOLDEN64) * (edge_ids[:, None] + 1))
    lanes = torch.arange(heads, device=edge_ids.device)
    draws = _mix32(_mix32((row + GOLDEN32 * lanes) & _LOW32) ^ _shift(row, 32))
    scale = 1.0 / (1.0 - dropout) if dropout < 1.0 else 0.0
    return (draws >= threshold(dropout)).to(dtype) * scale


def _fold(clock: Tensor, layer: int) -> Tensor:
    seed, epoch, step = (clock + 1).unbind()
    key = torch.zeros_like(seed)
    for count in (seed, int(Stream.ATTENTION) + 1, epoch, step, layer + 1):
        # An int is reduced to 64 bits in Python: torch would refuse the product.
        key = _mix64(
            key + (_signed(GOLDEN64 * count) if isinstance(count, int) else _signed(GOLDEN64) * count)
        )
    return key


def _shift(value: Tensor, bits: int) -> Tensor:
    """Return a logical right shift; that of torch repeats the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix64(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _mix32(value: Tensor) -> Tensor:
    # The low 32 bits of a product depend on the low 32 bits of its factors alone, so int64 may overflow.
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & _LOW32
    value = ((value ^ (value >> 15)) * 0x735A2D97) & _LOW32
    return value ^ (value >> 15)
