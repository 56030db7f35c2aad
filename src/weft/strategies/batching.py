"""What one step of training covers: everything, or a batch that a loader prepared (`minibatch/loaded.py`)."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from weft.stores.base import Counters
from weft.strategies.layout import Layout
from weft.strategies.shared import Shared
from weft.tasks.base import Pieces

Beside = Mapping[str, dict[str, float]]
"""What a task tells of a split beside its scores."""


class Batching:
    """The steps of an epoch, the loss of each, and the outputs that are scored. One a strategy."""

    def __init__(self, shared: Shared, layout: Layout) -> None:
        self.shared, self.layout = shared, layout

    # The steps of an epoch

    def __len__(self) -> int:
        """Return the number of steps of an epoch; after `begin_epoch`."""
        raise NotImplementedError

    def batches(self, epoch: int, first: int) -> Generator[Any, None, None]:
        """Give what each step of an epoch covers, from a step on."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, int]:
        """Return the own targets' share of the mean loss of all, and how many all are."""
        raise NotImplementedError

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be trained like this, before the run's folder is made."""

    def expect(self, epochs: int) -> None:
        """Note how many epochs the run has at most: work may begin before it is asked for, up to there."""

    def begin_epoch(self, model: nn.Module) -> None:
        """Make ready for the steps of an epoch."""

    def replayed(self, model: nn.Module, batch: Any) -> tuple[Tensor, int] | None:
        """Fill the gradients by what was captured of such a step; None: `loss` and backward do."""
        return None

    def taken(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int] | None:
        """Take a step that has updates of its own, and return as `loss` does; None: there is one update."""
        return None

    def stepping(self) -> AbstractContextManager[Any]:
        """Return what forward and backward of a step are in."""
        return nullcontext()

    def end_step(self) -> None:
        """Note that backward is done."""

    def epoch_ended(self, loss: float) -> None:
        """Note the loss of an epoch that is over, the same on all workers."""

    def settle(self) -> None:
        """Wait for what was begun, where an epoch is left between two steps."""

    # Outputs, computed exactly unless a batching says otherwise

    def outputs(self, model: nn.Module) -> tuple[dict[str, Pieces], Beside]:
        """Return the outputs of the own targets of each split, and what is told beside their scores.

        The model is in evaluation mode; called by all workers.
        """
        h, rows_of = self.layout.exact_rows(model), self.layout.rows_of
        beside = self.shared.task.scores_of_rows(model, h, self.shared.total)
        return {
            split: targets.pieces(model, h, rows_of) for split, targets in self.shared.scored.items()
        }, beside

    def node_outputs(self, model: nn.Module) -> Tensor:
        """Return the outputs of the own nodes of the target type; the model is in evaluation mode."""
        h = self.layout.exact_rows(model)[self.layout.graph.target_rows]
        return self.shared.task.rows_out(model, h)

    # What is told, and kept

    def epoch_fields(self) -> dict[str, Any]:
        """Return what the event of the last epoch tells of its batches."""
        return {}

    @property
    def wait_share(self) -> float | None:
        """The share of the epochs' time in which training waited for batches; None where there are none."""
        return None

    def counters(self) -> Counters | None:
        """Return what was read from the store of the features; None where they are no store's."""
        return None

    def is_by_node(self, name: str) -> bool:
        """Return whether a tensor of `state` has a row for each own node; those are all there are."""
        return False

    def holds(self, name: str) -> bool:
        """Return whether a tensor of a checkpoint is of `state` here; else it is the layout's."""
        return self.is_by_node(name)

    def state(self) -> dict[str, Tensor]:
        """Return what this worker needs to continue beyond clock and loss."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def run_state(self) -> dict[str, Any]:
        """Return what is the run's, the same on all workers, as JSON can hold it."""
        return {}

    def load_run_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `run_state` gave; nothing where a run of before kept nothing."""

    def close(self) -> None:
        """Let go of what was opened."""


class Everything(Batching):
    """One step an epoch, on all that the layout holds."""

    def __len__(self) -> int:
        return 1

    def batches(self, epoch: int, first: int) -> Generator[None, None, None]:
        """Give the only step."""
        yield None

    def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, int]:
        """Return the own share of the mean loss of all training targets."""
        loss = self.layout.loss_of(model, self.layout.training_rows(model))
        self.layout.end_forward()
        return loss, self.shared.targets["train"].count
