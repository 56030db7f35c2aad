"""What tasks of numbers share: they are learned standardised, and given back in the units of the data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.tasks.base import Targets, Task, Total, head_of
from weft.tasks.loss import REGRESSION_LOSSES, Loss
from weft.tasks.metrics import REGRESSION, Metric, regression
from weft.tasks.predicted import value_columns


class Numbers:
    """The units of what is predicted; with `standardise` those of the training targets."""

    def __init__(self, standardise: bool) -> None:
        self.standardise = standardise
        self.moments = (0.0, 1.0)

    def make_head(self) -> "Units | None":
        """Return what gives outputs back in the units of the data; `begin` tells it which."""
        return Units() if self.standardise else None

    def begin(self, model: nn.Module) -> None:
        """Tell a model's head the units."""
        head = head_of(model)
        for module in () if head is None else head.modules():
            if isinstance(module, Units):
                module.values.copy_(torch.tensor(self.moments, dtype=torch.float64))

    def loss(self, chosen: Loss, train: Targets, total: Total) -> Loss:
        """Return the loss, of standardised numbers where that is asked for; called by all workers."""
        if not self.standardise:
            return chosen
        self.moments = moments(train, total)
        return chosen if chosen.own else _standardised(chosen, self.moments[1])

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics of numbers that lie about the mean of training."""
        return regression(self.moments[0]) if self.standardise else REGRESSION


class NumberTask(Task):
    """A task of numbers, of whatever has them: stands before the base that says what a target is."""

    metrics: Mapping[str, Metric] = REGRESSION
    metric: ClassVar[str] = "rmse"
    watched: ClassVar[tuple[str, ...]] = ("mae", "r2")
    losses: ClassVar[Mapping[str, Loss]] = REGRESSION_LOSSES
    known_as: ClassVar[str] = "number"

    def __init__(self, *, standardise: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.numbers = Numbers(standardise)

    def begin(self, model: nn.Module) -> None:
        """Tell the head the units."""
        self.numbers.begin(model)

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return the loss, of standardised numbers where that is asked for."""
        loss = self.numbers.loss(super().make_loss(train, total), train, total)
        self.metrics = self.numbers.metrics
        return loss

    def predicted(self, outputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return `value`, in the units of the data."""
        return value_columns(outputs)


class Units(nn.Module):
    """Gives standardised numbers back in the units of the data, in float64: a large mean costs no digits."""

    of_nodes: ClassVar[bool] = True
    bits: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Bits of float64 (mean, deviation): whole numbers, which `.to(dtype)` of a model does not round.
        self.register_buffer("bits", torch.tensor([0.0, 1.0], dtype=torch.float64).view(torch.int64))

    @property
    def values(self) -> Tensor:
        """Mean and deviation, [2] float64."""
        stored: Tensor = self.bits.view(torch.float64)
        return stored

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows · deviation + mean."""
        values = self.values
        return rows.double() * values[1] + values[0]


def _standardised(loss: Loss, deviation: float) -> Loss:
    """Return a loss of numbers in units of their standard deviation."""

    def each(outputs: Tensor, y: Tensor) -> Tensor:
        return loss.each(outputs / deviation, y / deviation)

    def summed(outputs: Tensor, y: Tensor) -> Tensor:
        return loss.summed(outputs / deviation, y / deviation)

    return replace(loss, each=each, summed=summed)


def moments(train: Targets, total: Total) -> tuple[float, float]:
    """Return mean and standard deviation of all workers' training numbers; 1 where these are all alike."""
    y = train.y.double().cpu()
    count = max(train.count, 1)
    mean = float(total(y.sum().reshape(1))) / count
    spread = float(total(((y - mean) ** 2).sum().reshape(1))) / count
    return mean, spread**0.5 if spread > 0 else 1.0
