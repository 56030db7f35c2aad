"""What the parts of one strategy share: the task, who trains, the clock that keys every draw, and where."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.events import Events
from weft.strategies.call import ModelCall
from weft.tasks.base import Targets, Task

CONTROL, EVALUATE = Label("control"), Label("evaluate")

Infer = Callable[[nn.Module, Any], Tensor]
"""(model, graph) to the exact outputs of the target type, piece by piece: no pass need hold all features."""


@dataclass(eq=False)
class Shared:
    """One a strategy; its layout, batching and reducer read it."""

    name: str
    """The strategy's, for messages."""
    task: Task
    targets: dict[str, Targets]
    """The own targets by split."""
    group: Group
    """The workers that train; a process alone is a group of one."""
    clock: Tensor
    """(seed, epoch, step), advanced in place."""
    device: torch.device
    """Where the model is."""
    call: ModelCall
    events: Events
    infer: Infer | None = None
    pulls_rows: bool = False
    """Whether the model reads learned rows that other workers hold: all of them then run it together."""

    @property
    def scored(self) -> dict[str, Targets]:
        """The targets that an evaluation scores, by split."""
        return {split: targets for split, targets in self.targets.items() if targets.scored}

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a small tensor over workers; called by all."""
        return self.group.all_reduce(value.clone(), label=CONTROL).wait()

    def everyones(self, rows: Tensor) -> Tensor:
        """Return the rows of all workers, in their order; called by all."""
        return self.group.gather_unequal(rows, label=EVALUATE)[0]
