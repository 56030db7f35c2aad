"""What a run came to."""

from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from weft.strategies.base import Scores


@dataclass(frozen=True)
class Summary:
    """What a run came to. Accuracies are those of the weights that are returned."""

    test_accuracy: float | None
    val_accuracy: float | None
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
    metric: str
    """What the best epoch was judged by."""
    metrics: Scores
    """Split to metric to value, every metric there is."""
    stopped: str
    """done, patience, or interrupted."""
    model: nn.Module = field(repr=False)
    """The trained model."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the model, ready for JSON."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "model"}
