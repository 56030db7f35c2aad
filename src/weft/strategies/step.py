"""An epoch of training and one step of it, the same for every layout, batching, reducer and task."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from weft.strategies.base import Strategy

Between = Callable[[], bool]
"""Asked between two steps of an epoch, on every worker, whether to leave it there."""


def take_epoch(
    strategy: "Strategy", model: nn.Module, optimizer: torch.optim.Optimizer, between: Between | None
) -> None:
    """Take the steps that are left of an epoch, and advance the clock.

    Where `between` says so it ends after a step, and the next call goes on there.
    """
    batching, reducer, clock = strategy.batching, strategy.reducer, strategy.clock
    reducer.prepare(model)
    batching.begin_epoch(model)
    model.train()
    epoch, first, steps = int(clock[1]), int(clock[2]), len(batching)
    if first == 0:
        strategy.tally = EpochLoss()
    with reducer.epoch(model, optimizer), closing(batching.batches(epoch, first)) as batches:
        for step, batch in zip(range(first, steps), batches):
            strategy.tally.add(*take_step(strategy, model, optimizer, batch, step))
            clock[2] = step + 1
            if between is not None and step + 1 < steps and reducer.meets(step + 1) and between():
                batching.settle()
                return
    clock[1] += 1
    clock[2] = 0


def take_step(
    strategy: "Strategy", model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
) -> tuple[Tensor, int]:
    """Go one step downhill; return the own share of the mean loss, and how many targets it is a mean of.

    `batch` is what the step covers. The layout gives the model its blocks and has a row for each node, the
    task makes outputs of rows and sums their losses (`Batching.loss`), the reducer sums gradients over
    workers. Where no worker has a target there is nothing to learn from, and the weights stay.
    """
    taken = strategy.batching.taken(model, optimizer, batch, step)
    if taken is not None:
        return taken
    replayed = strategy.batching.replayed(model, batch)
    loss, count = fill_gradients(strategy, model, optimizer, batch, step) if replayed is None else replayed
    if count:
        with strategy.events.phase("optimizer"):
            optimizer.step()
            strategy.learned.step()
    else:
        strategy.learned.forget()
    return loss, count


def fill_gradients(
    strategy: "Strategy", model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
) -> tuple[Tensor, int]:
    """Run the model forward and backward; return as `take_step` does."""
    phase = strategy.events.phase
    with strategy.reducer.weights(model), strategy.batching.stepping():
        with phase("forward"):
            loss, count = strategy.batching.loss(model, batch, step)
        if count:
            with phase("backward"):
                optimizer.zero_grad()
                strategy.reducer.backward(loss)
                strategy.end_step()
    return loss, count


def where_not_finite(first: Sequence[int], steps: int) -> str:
    """Return in words at which step, and on which workers, a loss was first not finite.

    `first` has the step of each worker, from 1; 0: all of its steps are finite.
    """
    step = min((each for each in first if each), default=0)
    ranks = [str(rank) for rank, each in enumerate(first) if each == step]
    told = f", step {step} of {steps}" if step and steps > 1 else ""
    alike = not step or len(ranks) == len(first)
    return told if alike else f"{told}, on rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"


class EpochLoss:
    """The loss of an epoch so far: the sum over own targets, and how many targets all workers had."""

    def __init__(self) -> None:
        self.sum, self.count = torch.zeros((), dtype=torch.float64), 0
        self._taken, self._finite = 0, torch.zeros((), dtype=torch.int64)

    def add(self, loss: Tensor, count: int) -> None:
        """Add a step's, where it lies: to read it would be to wait for the step."""
        if count:
            self.sum = self.sum.to(loss.device) + loss.detach().double() * count
            self.count += count
        self._taken += 1
        self._finite = self._finite.to(self.sum.device) + self.sum.isfinite()

    def first_not_finite(self, steps: int) -> int:
        """Return the first of an epoch's steps whose loss is not finite, from 1; 0 where all are."""
        before = steps - self._taken  # in an earlier session of the run
        return 0 if bool(self.sum.isfinite()) else before + int(self._finite) + 1

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint within an epoch holds."""
        return {"loss": self.sum.cpu().clone(), "count": torch.tensor(self.count, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from it."""
        self.sum, self.count = state["loss"].clone(), int(state["count"])
