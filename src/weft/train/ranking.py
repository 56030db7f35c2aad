"""Metrics of link prediction: where a true edge stands among its negatives.

All take scores of true edges [n] and of the negatives of each [n, count]. A tie counts half: the place of an
edge is one more than the negatives above it and half of those equal to it, so a model that scores everything
alike gains nothing.
"""

import torch
from torch import Tensor

from weft.errors import InputError
from weft.tasks.metrics import area


def places(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the place of each true edge among itself and its negatives, [n] float64; 1 is best.

    >>> places(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 2.0], [1.0, 2.0]])).tolist()
    [1.0, 2.5]
    """
    if positive.dim() != 1 or negative.dim() != 2 or len(positive) != len(negative):
        shapes = f"{list(positive.shape)} and {list(negative.shape)}"
        raise InputError(f"expected scores [n] of true edges and [n, count] of their negatives, got {shapes}")
    above = (negative > positive[:, None]).sum(1).double()
    return 1.0 + above + 0.5 * (negative == positive[:, None]).sum(1).double()


def mrr(positive: Tensor, negative: Tensor) -> float:
    """Return the mean of 1 / place."""
    return _mean(places(positive, negative).reciprocal())


def hits(positive: Tensor, negative: Tensor, k: int = 10) -> float:
    """Return the share of true edges among the first `k`."""
    return _mean((places(positive, negative) <= k).double())


def auc(positive: Tensor, negative: Tensor) -> float:
    """Return the chance that a true edge scores above a negative of any edge, ties counting half."""
    scores = torch.cat([positive.flatten(), negative.flatten()]).double()
    true = torch.arange(scores.numel()) < positive.numel()
    return area(scores, true) if positive.numel() and negative.numel() else float("nan")


def _mean(values: Tensor) -> float:
    return float(values.mean()) if values.numel() else float("nan")
