"""One step of training, the same for every layout, batching and task."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from weft.strategies.base import Strategy


def take_step(
    strategy: "Strategy", model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
) -> tuple[Tensor, int]:
    """Go one step downhill; return the own share of the mean loss, and how many targets it is a mean of.

    `batch` is what the step covers, None where that is the whole graph. Where no worker has a target there is
    nothing to learn from, and the weights stay.
    """
    loss, count = strategy.gradients(model, optimizer, batch, step)
    if count:
        with strategy.events.phase("optimizer"):
            optimizer.step()
    return loss, count


def fill_gradients(
    strategy: "Strategy", model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
) -> tuple[Tensor, int]:
    """Run the model forward and backward; return as `take_step` does.

    The layout gives the model its blocks and has a row for each node, the task makes outputs of rows and sums
    their losses (both in `step_loss`); gradients are summed over workers where there are any (`backward`).
    """
    with strategy.events.phase("forward"):
        loss, count = strategy.step_loss(model, batch, step)
    if count:
        with strategy.events.phase("backward"):
            optimizer.zero_grad()
            strategy.backward(loss)
            strategy.end_step()
    return loss, count
