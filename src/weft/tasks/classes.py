"""What tasks of classes share: what each class weighs in the loss, and how sure a target is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from weft.errors import RecipeError
from weft.tasks.base import Targets, Total
from weft.tasks.loss import Loss, cross_entropy

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
        given = torch.tensor(self.weights, dtype=torch.float64)
        mean = (given * counts).sum() / counts.sum()
        if not bool((given >= 0).all()) or not float(mean) > 0:
            raise RecipeError(
                "task.weights: expected numbers of at least 0, some class of the training targets above it"
            )
        return given / mean  # so that the training targets weigh 1 in the mean
