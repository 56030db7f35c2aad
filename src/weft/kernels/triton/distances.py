"""Sums of moduli of differences between many rows and many others, which no product of matrices gives."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BN, _BM, _BK = 64, 64, 32


@triton.jit
def _sums_kernel(x, y, out, n, m, K: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr):
    """Sum over k the modulus of x - y: x is [batches, PARTS · K, n], y [.., m], out [batches, n, m]."""
    batch = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    x += batch * (PARTS * K) * n + i
    y += batch * (PARTS * K) * m + j
    total = tl.zeros([BN, BM], out.dtype.element_ty)
    for k in range(K):
        apart = tl.load(x + k * n, mask=i < n, other=0.0)[:, None]
        apart = apart - tl.load(y + k * m, mask=j < m, other=0.0)[None, :]
        if PARTS == 2:
            side = tl.load(x + (K + k) * n, mask=i < n, other=0.0)[:, None]
            side = side - tl.load(y + (K + k) * m, mask=j < m, other=0.0)[None, :]
            total += tl.sqrt(apart * apart + side * side)
        else:
            total += tl.abs(apart)
    cell = out + batch * n * m + i[:, None].to(tl.int64) * m + j[None, :]
    tl.store(cell, total, mask=(i < n)[:, None] & (j < m)[None, :])


@triton.jit
def _slopes_kernel(
    x, y, grad, out, n, m, K: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Sum over j grad [batches, m, n] times the derivative of |x_i - y_j| by x_i.

    x and out are [batches, n, PARTS · K], y is [batches, m, PARTS · K].
    """
    batch = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    inside = (i < n)[:, None] & (k < K)[None, :]
    place = batch * n * (PARTS * K) + i[:, None].to(tl.int64) * (PARTS * K) + k[None, :]
    y += batch * m * (PARTS * K) + k
    grad += batch * n * m + i
    own = tl.load(x + place, mask=inside, other=0.0)
    total = tl.zeros([BN, BK], out.dtype.element_ty)
    if PARTS == 2:
        own_side = tl.load(x + place + K, mask=inside, other=0.0)
        total_side = tl.zeros([BN, BK], out.dtype.element_ty)
    for j in range(m):
        by = tl.load(grad + j * n, mask=i < n, other=0.0)[:, None]
        apart = own - tl.load(y + j * (PARTS * K), mask=k < K, other=0.0)[None, :]
        if PARTS == 2:
            side = own_side - tl.load(y + j * (PARTS * K) + K, mask=k < K, other=0.0)[None, :]
            square = apart * apart + side * side
            share = by * tl.where(square > 0.0, tl.rsqrt(square), 0.0)
            total += apart * share
            total_side += side * share
        else:
            total += by * tl.where(apart > 0.0, 1.0, tl.where(apart < 0.0, -1.0, 0.0))
    tl.store(out + place, total, mask=inside)
    if PARTS == 2:
        tl.store(out + place + K, total_side, mask=inside)


def sums(query: Tensor, key: Tensor, parts: int) -> Tensor:
    """Return Σ |query - key| of [b, n, d] and [b, m, d], [b, n, m]; of `parts` 2 over complex numbers."""
    (batches, n, width), m = query.shape, key.shape[1]
    out = query.new_empty(batches, n, m)
    if out.numel():
        x, y = (rows.transpose(1, 2).contiguous() for rows in (query, key))
        grid = (triton.cdiv(n, _BN), triton.cdiv(m, _BM), batches)
        _sums_kernel[grid](x, y, out, n, m, K=width // parts, PARTS=parts, BN=_BN, BM=_BM, num_warps=4)
    return out


def slopes(query: Tensor, key: Tensor, gradient: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Return the gradients by query and by key of `sums`, from that of its result [b, n, m]."""
    turned = gradient.transpose(1, 2).contiguous()
    by_query = _slopes(query.contiguous(), key.contiguous(), turned, parts)
    return by_query, _slopes(key.contiguous(), query.contiguous(), gradient.contiguous(), parts)


def _slopes(x: Tensor, y: Tensor, gradient: Tensor, parts: int) -> Tensor:
    (batches, n, width), m = x.shape, y.shape[1]
    out = torch.zeros_like(x)
    if out.numel() and m:
        grid = (triton.cdiv(n, _BN), triton.cdiv(width // parts, _BK), batches)
        _slopes_kernel[grid](
            *(x, y, gradient, out, n, m), K=width // parts, PARTS=parts, BN=_BN, BK=_BK, num_warps=4
        )
    return out
