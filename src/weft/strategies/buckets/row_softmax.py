"""Shares of the candidates of each pair, and the logarithm of the sum of exponentials of their scores."""

import torch
from torch import Tensor

from weft.kernels import native

_P, _L, _I = native.POINTER, native.LONG, native.INT
_SIGNATURE: dict[str, list[type]] = {"weft_row_softmax": [_P, _P, _L, _L, _I, _I]}


def softmax_rows(scores: Tensor) -> Tensor:
    """Make rows [..., m] their softmax, in place; return the logarithms of their sums of exponentials [...].

    A row of nothing but -inf becomes zeros, and its logarithm is -inf.
    """
    if not (scores.is_cpu and native.available()) or scores.dtype not in (torch.float32, torch.float64):
        return reference_rows(scores)
    assert scores.is_contiguous()
    native.declare(_SIGNATURE)
    columns = scores.shape[-1]
    found = scores.new_empty(scores.shape[:-1])
    sizes = (found.numel(), columns, native.DTYPE_CODES[scores.dtype], native.threads())
    native.call("weft_row_softmax", scores, found, *sizes, what="softmax of rows")
    return found


def reference_rows(scores: Tensor) -> Tensor:
    """Do what `softmax_rows` does in plain torch."""
    found = scores.logsumexp(-1)
    scores.sub_(found.unsqueeze(-1)).exp_()
    scores.masked_fill_((found == -torch.inf).unsqueeze(-1), 0.0)
    return found
