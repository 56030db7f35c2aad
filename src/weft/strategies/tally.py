"""Scores of targets that come in pieces: sums where a metric adds up, all outputs where one needs them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from weft.errors import RecipeError
from weft.tasks.base import Total
from weft.tasks.loss import Loss
from weft.tasks.metrics import Counted, Metric
from weft.tasks.ranking import Ranks


class Tally:
    """Adds up what metrics and the loss of a split are made of, piece by piece."""

    def __init__(self, metrics: Mapping[str, Metric], loss: Loss) -> None:
        self.loss = loss
        self.counted = {name: metric for name, metric in metrics.items() if isinstance(metric, Counted)}
        self.whole = {name: metric for name, metric in metrics.items() if name not in self.counted}
        self._order = list(metrics)
        self._sums: dict[str, Tensor] = {}
        self._held: list[tuple[Tensor, Tensor]] = []

    def add(self, outputs: Tensor | Ranks, y: Tensor) -> None:
        """Count some targets; they are kept only where a metric needs all of them."""
        sums = {name: metric.counts(outputs, y) for name, metric in self.counted.items()}
        if isinstance(outputs, Ranks):
            if self.whole:
                raise RecipeError(
                    f"train.metrics: filtered ranks have no outputs for {', '.join(self.whole)}"
                )
            sums["loss"] = outputs.losses.sum()
        else:
            sums["loss"] = self.loss.summed(outputs, y).double()
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        if self.whole and isinstance(outputs, Tensor):
            self._held.append((outputs, y))

    def scores(self, total: Total, gathered: Callable[[Tensor], Tensor], count: int) -> dict[str, float]:
        """Return each metric and the mean loss of `count` targets, of all workers; all of them call it.

        `total` sums over workers, `gathered` gives the rows of all.
        """
        sums = {name: total(value) for name, value in self._sums.items()}
        values = {name: metric.value(sums[name]) for name, metric in self.counted.items()}
        if self.whole:
            outputs, y = (gathered(torch.cat(rows)) for rows in zip(*self._held))
            values |= {name: metric(outputs, y) for name, metric in self.whole.items()}
        ordered = {name: values[name] for name in self._order}
        return {**ordered, "loss": float(sums["loss"]) / count}
