"""What a step on learned rows does on a GPU without asking it for a number: draws, masks and changed rows."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.kernels.triton.draw import draw, row_key
from weft.kernels.triton.plan import power

_MANY = 4096
"""Rows of scores that fill a GPU."""


@triton.jit
def _bits_kernel(key, ids, out, lanes, BL: tl.constexpr):
    """Store the bits of (ids[i], lane): key [1], ids [n], out [n, lanes]; a program some lanes of a row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BL + tl.arange(0, BL)
    bits = draw(row_key(tl.load(key), tl.load(ids + row)), lane)
    tl.store(out + row * lanes + lane, bits.to(tl.int64), mask=lane < lanes)


def bits(key: Tensor, ids: Tensor, lanes: int) -> Tensor:
    """Return the 32 bits of each id [n] and lane, [n, lanes] int64; the key lies on the GPU, [1]."""
    out = torch.empty((len(ids), lanes), dtype=torch.int64, device=ids.device)
    if out.numel():
        block = min(power(lanes), 256)
        _bits_kernel[(len(ids), triton.cdiv(lanes, block))](key, ids, out, lanes, BL=block, num_warps=2)
    return out


@triton.jit
def _leave_out_kernel(
    scores, first, count, ends, nodes, column, rows, columns, width, STEPS: tl.constexpr, BE: tl.constexpr
):
    """Put -inf where a candidate is a true end of a row; one program per row.

    tensor      shape               holds
    scores      [chunks · rows, width]  the true pair's, those of candidates, and perhaps others
    first       [chunks · rows]     where the true ends of a row begin, `count` of them
    nodes       [chunks, columns]   the candidates of a chunk, rising
    column      [chunks, columns]   where each of them stands
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(first + row)
    many = tl.load(count + row).to(tl.int32)
    nodes += row // rows * columns
    column += row // rows * columns
    scores += row * width + 1
    for k in range(0, many, BE):
        at = k + tl.arange(0, BE)
        live = at < many
        end = tl.load(ends + begin + at, mask=live, other=-1)
        low = tl.zeros([BE], tl.int32)
        high = low + columns
        for _ in range(STEPS):
            open = low < high
            middle = (low + high) // 2
            less = tl.load(nodes + middle, mask=live & open, other=0) < end
            low = tl.where(open & less, middle + 1, low)
            high = tl.where(open & (less == 0), middle, high)
        hit = live & (low < columns)
        hit = hit & (tl.load(nodes + low, mask=hit, other=-1) == end)
        while tl.max(hit.to(tl.int32), 0) > 0:  # a candidate may stand there several times
            place = tl.load(column + low, mask=hit, other=0)
            tl.store(scores + place, float("-inf"), mask=hit)
            low += 1
            hit = hit & (low < columns)
            hit = hit & (tl.load(nodes + low, mask=hit, other=-1) == end)


def leave_out(scores: Tensor, first: Tensor, count: Tensor, ends: Tensor, candidates: Tensor) -> None:
    """Put -inf where scores [chunks, n, 1 + m or more] are those of true ends of their row.

    Row i of all has the true ends `ends[first[i]]` … of number `count[i]`; candidates are [chunks, m].
    """
    chunks, rows, width = scores.shape
    columns = candidates.shape[1]
    assert scores.is_contiguous()
    if not scores.numel() or not columns:
        return
    few = chunks * rows < _MANY  # a row of many true ends is then what all wait for
    nodes, column = torch.sort(candidates.to(torch.int32), dim=1)  # half the passes of 64 bits
    _leave_out_kernel[(chunks * rows,)](
        scores,
        first,
        count,
        ends,
        nodes,
        column,
        rows,
        columns,
        width,
        STEPS=columns.bit_length(),
        BE=512 if few else 128,
        num_warps=4 if few else 2,
    )


@triton.jit
def _adagrad_kernel(
    values, total, ids, order, grads, count, lr, eps, F: tl.constexpr, BE: tl.constexpr, BF: tl.constexpr
):
    """Change a row by the sum of its gradients; the program of its first place does, all others end.

    tensor      shape       holds
    ids         [count]     rows, rising, each as often as it has gradients
    order       [count]     where each gradient stands
    """
    item = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + item).to(tl.int64)
    begins = (row != tl.load(ids + tl.maximum(item - 1, 0))) | (item == 0)
    f = tl.arange(0, BF)
    inside = f < F
    grad = tl.zeros([BF], grads.dtype.element_ty)
    more = begins
    while more:
        place = item + tl.arange(0, BE)
        own = place < count
        own = own & (tl.load(ids + place, mask=own, other=-1) == row)
        source = tl.load(order + place, mask=own, other=0)
        cell = grads + source[:, None] * F + f[None, :]
        grad += tl.sum(tl.load(cell, mask=own[:, None] & inside[None, :], other=0.0), 0)
        item += BE
        more = tl.sum(own.to(tl.int32), 0) == BE
    if begins:
        new = tl.load(total + row) + tl.sum(grad * grad, 0) / F
        old = tl.load(values + row * F + f, mask=inside, other=0.0)
        tl.store(values + row * F + f, old - grad * (lr / (tl.sqrt(new) + eps)), mask=inside)
        tl.store(total + row, new)


def rowwise_adagrad(
    values: Tensor, total: Tensor, rows: Tensor, grad: Tensor, *, lr: float, eps: float
) -> None:
    """Take a step of Adagrad with one sum per row on rows [m], which may come several times, in place."""
    if not len(rows):
        return
    ids, order = torch.sort(rows.to(torch.int32), stable=True)  # half the passes of 64 bits
    width = values.shape[1]
    _adagrad_kernel[(len(ids),)](
        values,
        total,
        ids,
        order,
        grad.contiguous(),
        len(ids),
        lr,
        eps,
        F=width,
        BE=max(1, min(8, 8192 // power(width))),
        BF=power(width),
        num_warps=4,
    )
