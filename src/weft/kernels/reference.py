"""Every operator in plain PyTorch: the definition, the fallback on any device, and the oracle of the tests.

Nothing here is fast and nothing is fused: values of size edges × features are made freely. The signatures are
those of the registered operators. `edges` maps an edge of this CSR to the place of its weight (None: the same
place), so one function serves a graph and its transpose.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from weft.draw import GOLDEN32, GOLDEN64, signed, threshold
from weft.errors import InputError
from weft.kernels.registration import accumulator, index_dtype

_MASK32 = 0xFFFFFFFF


def edge_rows(indptr: Tensor, num_edges: int) -> Tensor:
    """Return the row of every edge, int64 [E]."""
    rows = torch.arange(indptr.shape[0] - 1, device=indptr.device)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=num_edges)


def _column(value: Tensor, like: Tensor) -> Tensor:
    """Return value with dimensions of size 1 added at the end, to be broadcast against `like`."""
    return value.reshape(value.shape + (1,) * (like.dim() - value.dim()))


def inverse_degree(indptr: Tensor, dtype: torch.dtype, scale: Tensor | None = None) -> Tensor:
    """Return 1 / number of edges of each row (times scale), 0 for an empty row."""
    degree = indptr.diff()
    inverse = torch.where(degree > 0, degree.clamp(min=1).to(dtype).reciprocal(), 0)
    return inverse if scale is None else inverse * scale


def spmm(
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    mean: bool,
    src_mean: bool = False,
    t_indptr: Tensor | None = None,
    t_indices: Tensor | None = None,
    t_edges: Tensor | None = None,
) -> Tensor:
    """out[v] = dst_scale[v] · Σ weight[e] · src_scale[u] · x[u] over the edges e = (u, v).

    mean divides by the number of edges of v; src_mean divides each x[u] by the number of edges of u in the
    transposed CSR: the transpose of a mean.
    """
    kind = accumulator(x.dtype)
    if src_mean and t_indptr is not None:
        src_scale = inverse_degree(t_indptr, kind, src_scale)
    messages = x.to(kind)[indices]
    if weight is not None:
        messages = messages * _column(weight if edges is None else weight[edges], messages)
    if src_scale is not None:
        messages = messages * _column(src_scale[indices], messages)
    out = messages.new_zeros((indptr.shape[0] - 1, *x.shape[1:]))
    out.index_add_(0, edge_rows(indptr, indices.shape[0]), messages)
    if mean:
        dst_scale = inverse_degree(indptr, kind, dst_scale)
    if dst_scale is not None:
        out = out * _column(dst_scale, out)
    return out.to(x.dtype)


def extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    maximum: bool,
    t_indptr: Tensor | None = None,
    t_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the largest or smallest value over each row's edges (0 if none) and how many edges attain it.

    NaN beats every number.
    """
    messages = x[indices]
    rows = edge_rows(indptr, indices.shape[0])
    value = x.new_zeros((indptr.shape[0] - 1, *x.shape[1:]))
    value.scatter_reduce_(
        0,
        _column(rows, messages).expand_as(messages),
        messages,
        reduce="amax" if maximum else "amin",
        include_self=False,
    )
    count = torch.zeros(value.shape, dtype=torch.int32, device=x.device)
    count.index_add_(0, rows, _same(messages, value[rows]).to(torch.int32))
    return value, count


def extreme_backward(
    t_indptr: Tensor, t_indices: Tensor, x: Tensor, value: Tensor, count: Tensor, grad: Tensor
) -> Tensor:
    """Return the gradient of x: a row's gradient is shared equally among the edges that attain its value."""
    kind = accumulator(x.dtype)
    share = (grad.to(kind) / count.clamp(min=1))[t_indices]
    rows = edge_rows(t_indptr, t_indices.shape[0])
    share = torch.where(_same(x[rows], value[t_indices]), share, 0)
    out = torch.zeros(x.shape, dtype=kind, device=x.device)
    return out.index_add_(0, rows, share).to(x.dtype)


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def sddmm_dot(
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor | None,
    a: Tensor,
    b: Tensor,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    mean: bool = False,
    src_mean: bool = False,
    t_indptr: Tensor | None = None,
    t_indices: Tensor | None = None,
    t_edges: Tensor | None = None,
) -> Tensor:
    """out[e] = src_scale[u] · dst_scale[v] · ⟨a[u], b[v]⟩ in the accumulator's type; means as for spmm."""
    kind = accumulator(a.dtype)
    rows = edge_rows(indptr, indices.shape[0])
    out = (a.to(kind)[indices] * b.to(kind)[rows]).sum(-1)
    if src_mean and t_indptr is not None:
        src_scale = inverse_degree(t_indptr, kind, src_scale)
    if mean:
        dst_scale = inverse_degree(indptr, kind, dst_scale)
    if src_scale is not None:
        out = out * _column(src_scale[indices], out)
    if dst_scale is not None:
        out = out * _column(dst_scale[rows], out)
    return out if edges is None else torch.empty_like(out).index_copy_(0, edges.long(), out)


def sddmm(
    indptr: Tensor,
    indices: Tensor,
    a: Tensor,
    b: Tensor,
    op: str,
    t_indptr: Tensor | None = None,
    t_indices: Tensor | None = None,
    t_edges: Tensor | None = None,
) -> Tensor:
    """out[e] = a[u] op b[v], element by element."""
    rows = edge_rows(indptr, indices.shape[0])
    left, right = a[indices], b[rows]
    if op == "mul":
        return left * right
    return left + right if op == "add" else left - right


def edge_softmax(indptr: Tensor, scores: Tensor) -> Tensor:
    """Return the softmax of scores [E, ...] over the edges of each row; 0 where all of them are −inf."""
    rows, scores = edge_rows(indptr, scores.shape[0]), scores.contiguous()
    top = scores.new_zeros((indptr.shape[0] - 1, *scores.shape[1:]))
    top.scatter_reduce_(0, _column(rows, scores).expand_as(scores), scores, reduce="amax", include_self=False)
    top = torch.where(top == -torch.inf, 0.0, top)
    powers = (scores - top[rows]).exp()
    total = torch.zeros_like(top).index_add_(0, rows, powers)
    return powers / torch.where(total == 0, 1.0, total)[rows]


def edge_softmax_backward(indptr: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the scores, out · (grad − Σ out · grad over the row)."""
    rows = edge_rows(indptr, out.shape[0])
    product = out * grad.contiguous()
    total = out.new_zeros((indptr.shape[0] - 1, *out.shape[1:])).index_add_(0, rows, product)
    return product - out * total[rows]


def dropout(
    x: Tensor, ids: Tensor, p: float, clock: Tensor, stream: int, layer: int, lanes: Tensor | None = None
) -> Tensor:
    """Return x with elements zeroed whose draw for (id, lane) is below p, the others times 1 / (1 − p)."""
    if lanes is None:
        lanes = torch.arange(x[0].numel() if x.shape[0] else 1, device=x.device)
        bits = draw(clock, stream, layer, ids[:, None], lanes)
    else:
        bits = draw(clock, stream, layer, ids, lanes)
    kept = (bits >= threshold(p)).reshape(x.shape)
    return torch.where(kept, x.contiguous() * keep_scale(p), 0)


def keep_scale(p: float) -> float:
    """Return what dropout multiplies the kept elements by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows]."""
    return x.index_select(0, rows)


def gather_backward(grad: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Return the sum of the gradients of each row."""
    kind = accumulator(grad.dtype)
    out = torch.zeros((num_rows, *grad.shape[1:]), dtype=kind, device=grad.device)
    return out.index_add_(0, rows, grad.to(kind)).to(grad.dtype)


def build_csr(
    src: Tensor, dst: Tensor, num_dst: int, edge_type: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (indptr, indices, edge_ids): edges by dst, then relation, then src, then position."""
    order = torch.argsort(src, stable=True)
    if edge_type is not None:
        order = order[torch.argsort(edge_type[order], stable=True)]
    order = order[torch.argsort(dst[order], stable=True)]
    kind = index_dtype(int(src.max()) + 1 if src.numel() else 0)
    return _pointers(dst, num_dst), src[order].to(kind), order


def transpose(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (indptr, rows, edges) of the transposed CSR; edges of a row stay in order."""
    ordered, edges = torch.sort(indices, stable=True)
    bounds = torch.arange(num_src + 1, dtype=ordered.dtype, device=ordered.device)
    rows = edge_rows(indptr, indices.shape[0])[edges]
    kind = index_dtype(max(indptr.shape[0], indices.shape[0]))
    return torch.searchsorted(ordered, bounds), rows.to(kind), edges.to(kind)


def _pointers(rows: Tensor, num_rows: int) -> Tensor:
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=num_rows), 0, out=indptr[1:])
    return indptr


def relabel(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance and, for each id, its place among them."""
    values, first, inverse = np.unique(ids.reshape(-1).cpu().numpy(), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    local = torch.from_numpy(place[inverse.reshape(-1)].astype(np.int64)).to(ids.device)
    return torch.from_numpy(values[order].astype(np.int64)).to(ids.device), local.reshape(ids.shape)


def fingerprint(tensor: Tensor) -> int:
    """Return Σ w_i b^(n - 1 - i) mod 2^64 of a tensor's n words of 64 bits, with b = GOLDEN64."""
    found = tensor.detach().contiguous().view(-1).view(torch.uint8)
    words = np.zeros(-(-found.numel() // 8), dtype=np.uint64)
    words.view(np.uint8)[: found.numel()] = found.numpy()
    powers = np.full(words.size, GOLDEN64, dtype=np.uint64)
    powers[-1:] = 1
    return int((words * np.cumprod(powers[::-1])[::-1]).sum(dtype=np.uint64))


def segment_matmul(x: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return x[offsets[s] : offsets[s + 1]] @ weights[s] for every segment s, stacked."""
    out = x.new_empty((x.shape[0], weights.shape[2]))
    for segment, (start, stop) in enumerate(segments(offsets, x.shape[0])):
        if stop > start:
            torch.mm(x[start:stop], weights[segment], out=out[start:stop])
    return out


def segment_outer(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """Return x[segment].T @ grad[segment] for every segment: the gradient of the weights."""
    out = x.new_zeros((offsets.shape[0] - 1, x.shape[1], grad.shape[1]))
    for segment, (start, stop) in enumerate(segments(offsets, x.shape[0])):
        if stop > start:
            torch.mm(x[start:stop].T, grad[start:stop], out=out[segment])
    return out


def segment_matmul_of(x: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return x[rows] times the weights of each segment, gathered a segment at a time."""
    out = x.new_empty((rows.shape[0], weights.shape[2]))
    for segment, (start, stop) in enumerate(segments(offsets, rows.shape[0])):
        torch.mm(x.index_select(0, rows[start:stop]), weights[segment], out=out[start:stop])
    return out


def segment_matmul_of_rows(
    grad: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor, num_rows: int
) -> Tensor:
    """Return the gradient of x, a segment after the other: none has a row twice."""
    out = grad.new_zeros((num_rows, weights.shape[1]))
    for segment, (start, stop) in enumerate(segments(offsets, rows.shape[0])):
        out.index_add_(0, rows[start:stop], grad[start:stop] @ weights[segment].T)
    return out


def segment_outer_of(x: Tensor, rows: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """Return the gradient of the weights."""
    out = x.new_empty((offsets.shape[0] - 1, x.shape[1], grad.shape[1]))
    for segment, (start, stop) in enumerate(segments(offsets, rows.shape[0])):
        torch.mm(x.index_select(0, rows[start:stop]).T, grad[start:stop], out=out[segment])
    return out


def segments(offsets: Tensor, num_rows: int) -> list[tuple[int, int]]:
    """Return the first and the last row (excluded) of every segment, or say what is wrong with them."""
    bounds: list[int] = offsets.tolist()
    if bounds[0] != 0 or bounds[-1] != num_rows or any(b < a for a, b in pairwise(bounds)):
        got = ", ".join(map(str, bounds[:8])) + (" …" if len(bounds) > 8 else "")
        raise InputError(f"offsets must rise from 0 to the {num_rows} rows of x, got {got}")
    return list(pairwise(bounds))


def draw(clock: Tensor, stream: int, layer: int, ids: Tensor, lanes: Tensor) -> Tensor:
    """Return the 32 bits of weft.draw for each (id, lane), as int64; clock is (seed, epoch, step)."""
    key = clock.new_zeros(()).to(ids.device)
    seed, epoch, step = clock.to(ids.device).unbind()
    for value in (seed, stream, epoch, step, layer):
        key = _mix64(
            key + (value + 1) * signed(GOLDEN64) if isinstance(value, Tensor) else key + _golden(value)
        )
    return draw_by(key, ids, lanes)


def draw_by(key: Tensor, ids: Tensor, lanes: Tensor) -> Tensor:
    """Return the 32 bits of weft.draw for each (id, lane), as int64; the key is one number, int64."""
    row = _mix64(key + signed(GOLDEN64) * (ids.long() + 1))
    low, high = row & _MASK32, (row >> 32) & _MASK32
    return _mix32(_mix32((low + GOLDEN32 * lanes.long()) & _MASK32) ^ high)


def _golden(value: int) -> int:
    return signed((GOLDEN64 * (value + 1)) & ((1 << 64) - 1))


def _shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)  # >> keeps the sign; the draw wants zeros


def _mix64(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def _mix32(value: Tensor) -> Tensor:
    value = ((value ^ (value >> 16)) * 0x21F0AAAD) & _MASK32
    value = ((value ^ (value >> 15)) * 0x735A2D97) & _MASK32
    return value ^ (value >> 15)
