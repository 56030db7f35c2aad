"""Metrics: how good predictions are, as the field counts it.

All take logits and the true labels of the nodes in question. `y` is [n] with one label a node, or
[n, classes] of zeros and ones with several. Definitions are scikit-learn's, and the tests hold them to it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.errors import RecipeError
from weft.registry import suggest

Metric = Callable[[Tensor, Tensor], float]


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Return the share of nodes predicted right; with several labels a node, all of them must be."""
    right = _predict(logits, y) == y
    return _mean(right.all(dim=1) if y.dim() == 2 else right)


def micro_f1(logits: Tensor, y: Tensor) -> float:
    """Return F1 over all decisions taken together; with one label a node this is accuracy."""
    true, wrong, missed = (count.sum() for count in _counts(logits, y))
    return _f1(true, wrong, missed).item()


def macro_f1(logits: Tensor, y: Tensor) -> float:
    """Return the mean F1 over classes; of one label a node, over those that are predicted or present."""
    true, wrong, missed = _counts(logits, y)
    seen = torch.ones_like(true, dtype=torch.bool) if y.dim() == 2 else (true + wrong + missed) > 0
    return _mean(_f1(true, wrong, missed)[seen])


def roc_auc(logits: Tensor, y: Tensor) -> float:
    """Return the area under the ROC curve: of class 1 of two, else the mean of each class against the rest.

    Classes without both positive and negative nodes have no curve and are left out; with none left it is nan.
    """
    if y.dim() == 2:
        scores, positive = logits.double(), y.bool()
    else:
        scores = torch.softmax(logits.double(), dim=1)
        positive = y.unsqueeze(1) == torch.arange(logits.shape[1], device=y.device)
        if logits.shape[1] == 2:
            scores, positive = scores[:, 1:], positive[:, 1:]
    held = positive.any(dim=0) & ~positive.all(dim=0)
    areas = [_area(scores[:, column], positive[:, column]) for column in held.nonzero().flatten().tolist()]
    return sum(areas) / len(areas) if areas else float("nan")


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "roc_auc": roc_auc,
}


def metric_named(name: str) -> Metric:
    """Return the metric of that name."""
    if name not in METRICS:
        raise RecipeError(f"no metric {name!r}; {suggest(name, METRICS)}known: {', '.join(METRICS)}")
    return METRICS[name]


def _predict(logits: Tensor, y: Tensor) -> Tensor:
    return (logits > 0).to(y.dtype) if y.dim() == 2 else logits.argmax(dim=1).to(y.dtype)


def _counts(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return true positives, false positives and false negatives of each class."""
    predicted, actual = _predict(logits, y), y
    if y.dim() == 1:
        classes = torch.arange(logits.shape[1], device=y.device)
        predicted, actual = predicted.unsqueeze(1) == classes, y.unsqueeze(1) == classes
    predicted, actual = predicted.bool(), actual.bool()
    return (predicted & actual).sum(0), (predicted & ~actual).sum(0), (~predicted & actual).sum(0)


def _f1(true: Tensor, wrong: Tensor, missed: Tensor) -> Tensor:
    return 2.0 * true.double() / (2 * true + wrong + missed).clamp(min=1)


def _area(scores: Tensor, positive: Tensor) -> float:
    """Return the chance that a positive node scores above a negative one, ties counting half."""
    _, place, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    rank = (last - (sizes.double() - 1) / 2)[place]
    num_positive = int(positive.sum())
    num_pairs = num_positive * (positive.numel() - num_positive)
    above = float(rank[positive].sum()) - num_positive * (num_positive + 1) / 2
    return above / num_pairs


def _mean(values: Tensor) -> float:
    return values.double().mean().item() if values.numel() else float("nan")
