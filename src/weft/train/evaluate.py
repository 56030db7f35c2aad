"""Metrics: how good predictions are, as the field counts it.

All take logits and the true labels of the nodes in question. `y` is [n] with one label a node, or
[n, classes] of zeros and ones with several. Definitions are scikit-learn's, and the tests hold them to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Counted:
    """A metric made of counts: those of several workers add up, so that no worker needs all nodes."""

    counts: Callable[[Tensor, Tensor], Tensor]
    """(logits, y) to whole numbers."""
    value: Callable[[Tensor], float]
    """The metric from the summed counts."""

    def __call__(self, logits: Tensor, y: Tensor) -> float:
        """Return the metric of nodes that are all here."""
        return self.value(self.counts(logits, y))


def _right(logits: Tensor, y: Tensor) -> Tensor:
    right = _predict(logits, y) == y
    right = right.all(dim=1) if y.dim() == 2 else right
    return torch.stack([right.sum(), right.new_tensor(right.numel(), dtype=torch.int64)])


def _share(counts: Tensor) -> float:
    right, total = counts.tolist()
    return right / total if total else float("nan")


def _micro(counts: Tensor) -> float:
    true, wrong, missed = counts[:3].sum(dim=1)
    return _f1(true, wrong, missed).item()


def _macro(counts: Tensor) -> float:
    """Of one label a node, over the classes that are predicted or present."""
    true, wrong, missed, always = counts
    return _mean(_f1(true, wrong, missed)[(true + wrong + missed + always) > 0])


def _decisions(logits: Tensor, y: Tensor) -> Tensor:
    """Return [4, classes]: true and false positives, false negatives, and whether a class counts anyway."""
    counts = torch.stack(_counts(logits, y))
    always = torch.full_like(counts[:1], 1 if y.dim() == 2 else 0)
    return torch.cat([counts, always])


accuracy = Counted(_right, _share)
"""The share of nodes predicted right; with several labels a node, all of them must be."""
micro_f1 = Counted(_decisions, _micro)
"""F1 over all decisions taken together; with one label a node this is accuracy."""
macro_f1 = Counted(_decisions, _macro)
"""The mean F1 over classes; of one label a node, over those that are predicted or present."""


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
    areas = [area(scores[:, column], positive[:, column]) for column in held.nonzero().flatten().tolist()]
    return sum(areas) / len(areas) if areas else float("nan")


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "roc_auc": roc_auc,
}


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


def area(scores: Tensor, positive: Tensor) -> float:
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
