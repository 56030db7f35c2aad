"""How a query and a key become a score: their product, or how near they are.

`paired` compares [..., d] with [..., d], one score a row; `crossed` each of [..., n, d] with each of [..., m,
d], [..., n, m], by one product of matrices where there is one. A key equal to its query has no gradient.
"""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.kernels import gpu
from weft.kernels.second import first_derivatives_only

_AT_ONCE = 1 << 22
"""Numbers that are held of queries by keys at a time, where no product of matrices gives their score."""


class Comparison(Protocol):
    """How a query and a key become a score."""

    def paired(self, query: Tensor, key: Tensor) -> Tensor:
        """Return one score per row; both are broadcast."""

    def crossed(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the score of each query with each key."""


class Product:
    """Σ query * key."""

    def paired(self, query: Tensor, key: Tensor) -> Tensor:
        """Return one score per row."""
        # No product of matrices: it sums rows at the end of a tile in another order, and breaks ties.
        return (query * key).sum(-1)

    def crossed(self, query: Tensor, key: Tensor) -> Tensor:
        """Return one product of matrices."""
        return query @ key.transpose(-1, -2)


class Nearness:
    """`offset` - |query - key|, of the norm 1 or 2."""

    def __init__(self, norm: int, offset: float = 0.0) -> None:
        self.norm, self.offset = norm, offset

    def paired(self, query: Tensor, key: Tensor) -> Tensor:
        """Return one score per row."""
        apart: Tensor = torch.linalg.vector_norm(query - key, ord=self.norm, dim=-1)
        return self.offset - apart

    def crossed(self, query: Tensor, key: Tensor) -> Tensor:
        """Return all scores: of the norm 2 by lengths and one product of matrices."""
        if self.norm == 1 and _has_sums(query):
            return self.offset - _summed(query, key, parts=1)
        apart: Tensor = torch.cdist(query, key, p=self.norm, compute_mode="use_mm_for_euclid_dist")
        return self.offset - apart


class ComplexNearness:
    """`offset` - Σ |query - key| over complex numbers, the real parts of a row before the imaginary ones."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def paired(self, query: Tensor, key: Tensor) -> Tensor:
        """Return one score per row."""
        return self.offset - moduli(query - key).sum(-1)

    def crossed(self, query: Tensor, key: Tensor) -> Tensor:
        """Return all scores, made from a few queries at a time, in backward too."""
        return self.offset - _summed(query, key, parts=2)


def _summed(query: Tensor, key: Tensor, *, parts: int) -> Tensor:
    """Return the sums of moduli of differences: of numbers of so many parts."""
    batches = prod(query.shape[:-2])
    flat = (rows.reshape(batches, *rows.shape[-2:]) for rows in (query, key))
    apart: Tensor = _Moduli.apply(*flat, parts)  # type: ignore[no-untyped-call]
    return apart.reshape(*query.shape[:-1], key.shape[-2])


def on_kernels(rows: Tensor) -> bool:
    """Return whether kernels of weft's own take rows: on a GPU, of the type that these are made for."""
    return rows.is_cuda and rows.dtype == torch.float32 and gpu.available()


def _has_sums(rows: Tensor) -> bool:
    """Return whether kernels sum distances of rows: in float64, too, in which ranks are counted."""
    return rows.is_cuda and rows.dtype in (torch.float32, torch.float64) and gpu.available()


class _Moduli(torch.autograd.Function):
    """The sums of moduli of differences, [b, n, m]; the moduli themselves would be k numbers a score."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, parts: int) -> Tensor:
        ctx.save_for_backward(query, key)
        ctx.parts = parts
        if _has_sums(query):
            from weft.kernels.triton import distances  # where there is a GPU

            return distances.sums(query, key, parts)
        found = query.new_empty(*query.shape[:2], key.shape[1])
        for batch, some in _pieces(query, key):
            found[batch, some] = moduli(query[batch, some, None] - key[batch]).sum(-1)
        return found

    @staticmethod
    @first_derivatives_only("the score of many pairs at once", "need `paired`, a score a pair")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key = ctx.saved_tensors
        if _has_sums(query):
            from weft.kernels.triton import distances  # where there is a GPU

            return *distances.slopes(query, key, gradient, ctx.parts), None
        of_query, of_key = torch.zeros_like(query), torch.zeros_like(key)
        for batch, some in _pieces(query, key):
            apart = query[batch, some, None] - key[batch]
            sizes = moduli(apart)
            share = (gradient[batch, some].unsqueeze(-1) / sizes).masked_fill_(sizes == 0, 0.0)
            slopes = (_parts(apart) * share.unsqueeze(-2)).flatten(-2)
            of_query[batch, some] = slopes.sum(1)
            of_key[batch] -= slopes.sum(0)
        return of_query, of_key, None


def moduli(rows: Tensor) -> Tensor:
    """Return the modulus of each complex number, [..., k] of [..., 2 k]; one that is 0 has no gradient."""
    # Not `vector_norm` over the two parts: along so short an axis it takes eighty times as long.
    real, other = rows.chunk(2, -1)
    square = torch.addcmul(real * real, other, other)
    held = square > 0
    return square.where(held, 1.0).sqrt().where(held, 0.0)


def _parts(rows: Tensor) -> Tensor:
    return rows.reshape(*rows.shape[:-1], 2, rows.shape[-1] // 2)


def _pieces(query: Tensor, key: Tensor) -> Iterator[tuple[int, slice]]:
    """Give which batch and which of its queries are compared at a time."""
    count = max(1, _AT_ONCE // max(1, key.shape[1] * key.shape[2]))
    for batch, first in product(range(len(query)), range(0, query.shape[1], count)):
        yield batch, slice(first, first + count)
