"""Rows by index: torch's own kernel forward, and backward a sum in the order of the sorted rows."""

import torch
from torch import Tensor

from weft.kernels import reference
from weft.kernels.triton.spmm import FLOATS, spmm


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows]."""
    return x.index_select(0, rows)


def gather_backward(grad: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Return the sum of the gradients of each row, the same bits every time."""
    if grad.dtype not in FLOATS:
        return reference.gather_backward(grad, rows, num_rows)
    ordered, positions = torch.sort(rows, stable=True)
    bounds = torch.arange(num_rows + 1, device=rows.device, dtype=ordered.dtype)
    indptr = torch.searchsorted(ordered, bounds)
    plain = (None, None, None, False, False, None, None, None)
    return spmm(indptr, positions, None, grad, *plain)
