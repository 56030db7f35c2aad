"""Rows of numbers: as a matrix, and added to others in an order that does not depend on luck."""

import math

import torch
from torch import Tensor

from weft import kernels


def as_matrix(values: Tensor) -> Tensor:
    """Return [n, ...] as [n, width]."""
    return values if values.dim() == 2 else values.reshape(values.shape[0], math.prod(values.shape[1:]))


def add_at(total: Tensor, rows: slice | Tensor, values: Tensor) -> None:
    """Add values to rows of `total`, each of which is named once."""
    if isinstance(rows, slice):
        total[rows] += values
    else:
        total.index_add_(0, rows, values)


def add_repeated(total: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values to rows of `total`; those of a row that is named several times in their order."""
    order = torch.argsort(rows, stable=True)
    each, counts = torch.unique_consecutive(rows[order], return_counts=True)
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    summed = kernels.spmm(ends, order, as_matrix(values))
    total[each] += summed.reshape(-1, *values.shape[1:])
