"""What a run came to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from weft.strategies.base import Scores


@dataclass(frozen=True)
class Summary:
    """What a run came to. Scores are those of the weights that are returned."""

    loss: float
    """Training loss of the last epoch."""
    epochs: int
    """Epochs done, those before a resume included."""
    best_epoch: int
    """The epoch whose weights are returned."""
    epoch_seconds_median: float
    """Of forward, backward and optimiser; evaluation is apart."""
    seconds: float
    """From the command, or the call, to the end: reading, cutting and starting workers are in it."""
    bytes_sent: int
    """Payload sent to other workers."""
    messages: int
    exposed_comm_seconds: float
    """Seconds in which computing waited for communication."""
    batch_wait_share: float | None
    """The share of an epoch that waited for batches, as others are made beside it; None without batches."""
    peak_memory_bytes: int
    strategy: str
    workers: int
    out: str | None
    """The run folder."""
    task: str
    """What was learned, by name; what "auto" came to."""
    metric: str
    """What the best epoch was judged by."""
    metrics: Scores
    """Split to metric to value, every metric there is."""
    stopped: str
    """done, patience, or interrupted."""
    model: nn.Module = field(repr=False)
    """The trained model."""
    details: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """What a task tells of a split beyond metrics: of filtered ranks, by end and by relation."""
    cost: dict[str, Any] | None = None
    """Dollars and value, 1 / (time x cost), by the user's table of prices; None without one."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], model: nn.Module) -> "Summary":
        """Return what `to_dict` gave, read back from JSON, with the model."""
        metrics = {
            split: {name: math.nan if value is None else value for name, value in scores.items()}
            for split, scores in values["metrics"].items()
        }
        known: dict[str, Any] = {item.name: values.get(item.name) for item in fields(cls)}
        return cls(**(known | {"metrics": metrics, "model": model, "details": values.get("details") or {}}))

    @property
    def test_accuracy(self) -> float | None:
        """The accuracy on test targets; None where the task knows none, or nothing was held out."""
        return self.metrics.get("test", {}).get("accuracy")

    @property
    def val_accuracy(self) -> float | None:
        """The same on validation targets."""
        return self.metrics.get("val", {}).get("accuracy")

    @property
    def scores(self) -> dict[str, float]:
        """Every metric by name, of the test targets; of validation targets where there are no others."""
        scores = self.metrics.get("test") or self.metrics.get("val") or {}
        return {name: value for name, value in scores.items() if name != "loss"}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the model, ready for JSON, and beside it the scores by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "model"}
        if any("accuracy" in scores for scores in self.metrics.values()):
            values = {"test_accuracy": self.test_accuracy, "val_accuracy": self.val_accuracy, **values}
        for name in ("details", "cost"):
            if not values[name]:
                del values[name]
        return {**self.scores, **values}
