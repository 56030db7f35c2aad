"""Metrics of nodes and edges: how good predictions are, as the field counts it.

All take the outputs and the true values of the targets in question. `METRICS` are those of classes: logits,
and `y` is [n] with one label per target, or [n, classes] of zeros and ones with several. `REGRESSION` are
of numbers: outputs [n, c] and y [n, c] (or [n] where c is 1), both in the user's units; a y that is NaN is no
target. Definitions are scikit-learn's, and the tests hold them to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError

Metric = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Counted:
    """A metric made of sums: those of several workers add up, so that no worker needs all targets."""

    counts: Callable[[Any, Any], Tensor]
    """(outputs, y) to sums: whole numbers, or float64. Of one shape, also where there are no rows."""
    value: Callable[[Tensor], float]
    """The metric from the sums of all."""
    lower_is_better: bool = False
    """Whether it is an error rather than a score."""

    def __call__(self, outputs: Tensor, y: Tensor | None = None) -> float:
        """Return the metric of targets that are all here; y is None where the outputs alone tell."""
        return self.value(self.counts(outputs, y))


def lower_is_better(metric: Metric) -> bool:
    """Return whether the best epoch is lowest in a metric; a function of the user's is a score."""
    return isinstance(metric, Counted) and metric.lower_is_better


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
    """Of one label per node, over the classes that are predicted or present."""
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
"""F1 over all decisions taken together; with one label per node this is accuracy."""
macro_f1 = Counted(_decisions, _macro)
"""The mean F1 over classes; of one label per node, over those that are predicted or present."""


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
    scored = positive.any(dim=0) & ~positive.all(dim=0)
    areas = [area(scores[:, column], positive[:, column]) for column in scored.nonzero().flatten().tolist()]
    return sum(areas) / len(areas) if areas else float("nan")


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "roc_auc": roc_auc,
}


def errors_of(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs - y [n, c] in the outputs' type, 0 where y is NaN, and whether there is a target."""
    known = y.unsqueeze(1) if y.dim() == 1 else y
    # [n] beside [n, 1] would be compared all with all.
    if outputs.shape != known.shape:
        raise InputError(
            f"expected one output a target, got outputs {list(outputs.shape)} for y {list(y.shape)}"
        )
    is_known = ~known.isnan()
    return (outputs - known.to(outputs.dtype)).where(is_known, 0.0), is_known


def _sums(outputs: Tensor, y: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return [2, c]: the targets of each column, and the sum of a function of their errors."""
    error, is_known = errors_of(outputs.double(), y)
    return torch.stack([is_known.double(), of(error)]).sum(1)


def _absolute(outputs: Tensor, y: Tensor) -> Tensor:
    return _sums(outputs, y, torch.abs)


def _squared(outputs: Tensor, y: Tensor) -> Tensor:
    return _sums(outputs, y, torch.square)


def _mean_of_columns(sums: Tensor) -> float:
    return _mean((sums[1] / sums[0])[sums[0] > 0])


def _root_of_columns(sums: Tensor) -> float:
    return _mean((sums[1] / sums[0]).sqrt()[sums[0] > 0])


def _r2(sums: Tensor) -> float:
    count, error, away, square = sums[:, sums[0] > 1]
    spread = square - away.square() / count
    # Below what rounding leaves of the sums it is not a spread: the targets are all equal.
    spread = spread.where(spread > 64 * torch.finfo(torch.float64).eps * square, 0.0)
    level = (error != 0).double()
    return _mean(1.0 - torch.where(spread > 0, error / spread.where(spread > 0, 1.0), level))


mae = Counted(_absolute, _mean_of_columns, lower_is_better=True)
"""The mean of |output - y|, and over columns the mean of those that have targets."""
rmse = Counted(_squared, _root_of_columns, lower_is_better=True)
"""The root of the mean of (output - y)², and over columns the mean of such roots."""


def r2_around(center: float | Tensor = 0.0) -> Counted:
    """Return R², 1 - Σ(output - y)² / Σ(y - mean of y)², and over columns the mean.

    What adds up over workers are sums in float64 of y less `center`, a constant that all of them know ([c] or
    one number: the mean of the training targets, say). The result does not depend on it but for rounding, of
    the relative size 1e-16 (mean of y - center)² / variance of y.

    As scikit-learn has it: targets that are all equal give 1 where they are met exactly, else 0; one target
    alone has no R².

    >>> r2_around(2.0)(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 3.0]))
    0.5
    """

    def counts(outputs: Tensor, y: Tensor) -> Tensor:
        error, is_known = errors_of(outputs.double(), y)
        away = (y.double().view_as(error) - center).where(is_known, 0.0)
        return torch.stack([is_known.double(), error.square(), away, away.square()]).sum(1)

    return Counted(counts, _r2)


def regression(center: float | Tensor = 0.0) -> dict[str, Counted]:
    """Return the metrics of numbers by name; `center` is that of `r2_around`."""
    return {"rmse": rmse, "mae": mae, "r2": r2_around(center)}


REGRESSION = regression()


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
    true, others = scores[positive], scores[~positive].sort().values
    # Sorting one side is enough, and many times cheaper than finding which scores are alike.
    below, up_to = (torch.searchsorted(others, true, right=right).double() for right in (False, True))
    above, num_pairs = float((below + up_to).sum() / 2), len(true) * len(others)
    return above / num_pairs


def _mean(values: Tensor) -> float:
    return values.double().mean().item() if values.numel() else float("nan")
