"""Sums of moduli of differences between many rows and many others, which no product of matrices gives.

Of complex numbers (`parts` = 2: the real parts of a row before the imaginary ones) or of real ones (1). A
modulus that is 0 has no gradient. Types that neither the core nor a kernel of a GPU knows stay in torch.
"""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from weft.kernels import gpu, native

_AT_ONCE = 1 << 20
"""Numbers that torch holds of queries by keys at a time: more are no longer in the cache."""
_P, _L, _I = native.POINTER, native.LONG, native.INT
_SIGNATURES: dict[str, list[type]] = {
    "weft_distance_sums": [_P, _P, _P, _L, _L, _L, _L, _I, _I, _I],
    "weft_distance_slopes": [_P, _P, _P, _P, _L, _L, _L, _L, _I, _I, _I],
}
_TYPES = (torch.float32, torch.float64)


def sums(query: Tensor, key: Tensor, parts: int) -> Tensor:
    """Return Σ |query - key|, [b, n, m] of rows [b, n, d] and [b, m, d]."""
    if _on_gpu(query):
        from weft.kernels.triton import distances  # where there is a GPU

        return distances.sums(query, key, parts)
    if not _native(query):
        return reference_sums(query, key, parts)
    turned = key.transpose(1, 2).contiguous()
    out = query.new_empty(*query.shape[:2], key.shape[1])
    _call("sums", query, key, parts, (query.contiguous(), turned, out))
    return out


def slopes(query: Tensor, key: Tensor, gradient: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Return the gradients by queries and by keys, from that of the sums [b, n, m]."""
    if _on_gpu(query):
        from weft.kernels.triton import distances  # where there is a GPU

        return distances.slopes(query, key, gradient, parts)
    if not _native(query):
        return reference_slopes(query, key, gradient, parts)
    by_query, by_key = torch.empty_like(query).contiguous(), torch.empty_like(key).contiguous()
    query, key, turned = query.contiguous(), key.contiguous(), gradient.transpose(1, 2).contiguous()
    _call("slopes", query, key, parts, (query, key, gradient.contiguous(), by_query))
    _call("slopes", key, query, parts, (key, query, turned, by_key))
    return by_query, by_key


def reference_sums(query: Tensor, key: Tensor, parts: int) -> Tensor:
    """Return `sums` in plain torch."""
    found = query.new_empty(*query.shape[:2], key.shape[1])
    for batch, some in _pieces(query, key):
        found[batch, some] = _sizes(query[batch, some, None] - key[batch], parts).sum(-1)
    return found


def reference_slopes(query: Tensor, key: Tensor, gradient: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Return `slopes` in plain torch."""
    by_query, by_key = torch.zeros_like(query), torch.zeros_like(key)
    for batch, some in _pieces(query, key):
        apart = query[batch, some, None] - key[batch]
        sizes = _sizes(apart, parts)
        share = (gradient[batch, some].unsqueeze(-1) / sizes).masked_fill_(sizes == 0, 0.0)
        numbers = apart.view(*apart.shape[:-1], parts, apart.shape[-1] // parts)
        found = numbers.mul(share.unsqueeze(-2)).flatten(-2)
        by_query[batch, some] = found.sum(1)
        by_key[batch] -= found.sum(0)
    return by_query, by_key


def _on_gpu(rows: Tensor) -> bool:
    return rows.is_cuda and rows.dtype in _TYPES and gpu.available()


def _native(rows: Tensor) -> bool:
    return rows.is_cpu and rows.dtype in _TYPES and native.library() is not None


def _call(what: str, rows: Tensor, others: Tensor, parts: int, tensors: tuple[Tensor, ...]) -> None:
    native.declare(_SIGNATURES)
    shape = len(rows), rows.shape[1], others.shape[1], rows.shape[2] // parts
    kind = native.DTYPE_CODES[rows.dtype]
    name = f"weft_distance_{what}"
    native.call(name, *tensors, *shape, parts, kind, native.threads(), what="distances")


def _sizes(apart: Tensor, parts: int) -> Tensor:
    """Return the moduli of numbers; not `vector_norm`, whose loop along two parts is no vector's."""
    if parts == 1:
        return apart.abs()
    real, other = apart.chunk(2, -1)
    return torch.addcmul(real * real, other, other).sqrt_()


def _pieces(query: Tensor, key: Tensor) -> Iterator[tuple[int, slice]]:
    """Give which batch and which of its queries are compared at a time."""
    count = max(1, _AT_ONCE // max(1, key.shape[1] * key.shape[2]))
    for batch, first in product(range(len(query)), range(0, query.shape[1], count)):
        yield batch, slice(first, first + count)
