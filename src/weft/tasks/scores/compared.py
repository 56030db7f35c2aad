"""How a query and a key become a score: their product, or how near they are.

`paired` compares [..., d] with [..., d], one score per row; `crossed` each of [..., n, d] with all [..., m,
d], [..., n, m], by one product of matrices where there is one. A key equal to its query has no gradient.
"""

from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.kernels import distances, gpu
from weft.kernels.second import first_derivatives_only


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
        """Return all scores: of the norm 1 as sums, of the norm 2 by lengths and one product of matrices."""
        if self.norm == 1:
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
        """Return all scores, whose differences are nowhere held, in backward neither."""
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


class _Moduli(torch.autograd.Function):
    """The sums of moduli of differences, [b, n, m]; the moduli themselves would be k numbers a score."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, parts: int) -> Tensor:
        ctx.save_for_backward(query, key)
        ctx.parts = parts
        return distances.sums(query, key, parts)

    @staticmethod
    @first_derivatives_only("the score of many pairs at once", "need `paired`, one score per pair")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key = ctx.saved_tensors
        return *distances.slopes(query, key, gradient, ctx.parts), None


def moduli(rows: Tensor) -> Tensor:
    """Return the modulus of each complex number, [..., k] of [..., 2 k]; one that is 0 has no gradient."""
    # Not `vector_norm` over the two parts: along so short an axis it takes eighty times as long.
    real, other = rows.chunk(2, -1)
    square = torch.addcmul(real * real, other, other)
    if not torch.is_grad_enabled():
        return square.sqrt_()
    is_apart = square > 0
    return square.where(is_apart, 1.0).sqrt().where(is_apart, 0.0)
