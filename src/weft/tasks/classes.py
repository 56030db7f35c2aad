"""What tasks of classes share: what each class weighs in the loss, how sure a target is, what is said."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from weft.config import Range
from weft.errors import DataNote, RecipeError
from weft.tasks.base import Targets, Task, Total
from weft.tasks.loss import CROSS_ENTROPY, Loss, cross_entropy
from weft.tasks.metrics import METRICS, Metric
from weft.tasks.predicted import class_columns

Weights = Sequence[float] | Literal["balanced"] | None


@dataclass(frozen=True)
class Classes:
    """The options of a task of classes, and the cross-entropy that they make."""

    weights: Weights = None
    """A number for each class, its share in the loss; "balanced": each class weighs as much as any other."""
    smoothing: float = 0.0
    """The share of a target that is spread over all classes."""

    def loss(self, chosen: Loss, train: Targets, total: Total, count: int) -> Loss:
        """Return the loss of `count` classes, from the one that was chosen; called by all workers."""
        if self.weights is None and not self.smoothing:
            return chosen
        if chosen.own:
            raise RecipeError(
                "task.weights, task.smoothing: train.loss is a function of your own; leave them out"
            )
        return cross_entropy(weights=self._weights(train, total, count), smoothing=self.smoothing)

    def _weights(self, train: Targets, total: Total, count: int) -> Tensor | None:
        if self.weights is None:
            return None
        counts = total(torch.bincount(train.y.cpu(), minlength=count).double())
        if isinstance(self.weights, str):
            return counts.sum() / (counts.clamp(min=1) * max(int((counts > 0).sum()), 1))
        if len(self.weights) != count:
            raise RecipeError(
                f"task.weights: expected {count} numbers, one per class, got {len(self.weights)}"
            )
        weights = torch.tensor(self.weights, dtype=torch.float64)
        mean = (weights * counts).sum() / counts.sum()
        if not bool((weights >= 0).all()) or not float(mean) > 0:
            raise RecipeError(
                "task.weights: expected numbers of at least 0, some class of the training targets above it"
            )
        return weights / mean  # so that the training targets weigh 1 in the mean


class ClassTask(Task):
    """A task of classes, of whatever has them: stands before the base that says what a target is."""

    metrics: Mapping[str, Metric] = METRICS
    metric: ClassVar[str] = "accuracy"
    watched: ClassVar[tuple[str, ...]] = ("accuracy",)
    losses: ClassVar[Mapping[str, Loss]] = {"cross_entropy": CROSS_ENTROPY}

    def __init__(
        self,
        *,
        weights: Weights = None,
        smoothing: Annotated[float, Range(least=0, below=1)] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.classes = Classes(weights, smoothing)

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return cross-entropy, or a loss of the user's own."""
        return self.classes.loss(super().make_loss(train, total), train, total, self.width)

    def predicted(self, outputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the `prediction`, its `probability`, and `output`, a number per class."""
        return class_columns(outputs, names)


def shown_facts(counts: Mapping[str, Any], what: str, one: str, many: str) -> dict[str, Any]:
    """Return what a report tells of the classes, or labels, of nodes, from the summary of a graph.

    `tag` is a count with its noun, `size` a line of a table, `balance` how many targets are of each class.
    """
    number, sizes = counts.get("num_classes"), counts.get("class_counts")
    facts = {"tag": [number, one, many], "size": [what, number]} if number else {}
    return facts | (
        {"balance": {"title": "Class balance", "of": ["class", "classes"], "sizes": sizes}} if sizes else {}
    )


def note_gaps(y: Tensor, what: str) -> None:
    """Tell of classes that nothing has where these are most: a model has an output for each all the same."""
    known = y[y >= 0]
    if not known.numel():
        return
    sizes = torch.bincount(known)
    there = int(sizes.count_nonzero())
    if len(sizes) > 2 * there + 100:
        warnings.warn(
            f"{what} has {there:,} different classes, and the largest is {len(sizes) - 1:,}: the model gets "
            f"{len(sizes):,} outputs; numpy.unique({what}, return_inverse=True)[1] numbers them 0 … "
            f"{there - 1:,}",
            DataNote,
            stacklevel=3,
        )
