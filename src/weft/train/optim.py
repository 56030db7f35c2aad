"""Optimisers and learning-rate schedules, by name.

A schedule sets the learning rate at the start of each epoch from the epoch number alone (cosine, step), or
from how often the watched metric failed to improve (plateau): its state is two numbers, in the checkpoint.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from weft.errors import InputError

OptimizerName = Literal["adam", "adamw", "sgd", "adagrad"]
ScheduleName = Literal["cosine", "step", "plateau"]


def make_optimizer(
    name: OptimizerName,
    parameters: Sequence[nn.Parameter],
    *,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Return the optimiser of those of these parameters that train."""
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    if not parameters:
        raise InputError(
            "model: it has no parameters that train; give it some, or requires_grad to those it has"
        )
    fused = True if parameters and parameters[0].is_cuda else None  # one kernel for all parameters
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=fused)
    if name == "adagrad":
        return torch.optim.Adagrad(parameters, lr=lr, weight_decay=weight_decay)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(parameters, lr=lr, weight_decay=weight_decay, fused=fused)


@dataclass
class Schedule:
    """The learning rate as a function of the epoch."""

    name: ScheduleName | None
    """cosine: to zero at the end; step: lower each `every` epochs; plateau: after `every` without gain."""
    lr: float
    """The rate at the start."""
    epochs: int
    """The length of the run."""
    every: int = 50
    """Epochs of a step, or of waiting on a plateau."""
    factor: float = 0.5
    """What the rate is multiplied with."""
    drops: int = 0
    """How often a plateau has lowered the rate."""
    waited: int = 0
    """Evaluations without improvement since the last gain or drop."""

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.name == "cosine":
            return self.lr * 0.5 * (1.0 + math.cos(math.pi * epoch / self.epochs))
        if self.name == "step":
            return self.lr * float(self.factor ** (epoch // self.every))
        return self.lr * float(self.factor**self.drops)

    def apply(self, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        """Set the rate of an epoch on every group of parameters."""
        for group in optimizer.param_groups:
            group["lr"] = self.rate(epoch)

    def observe(self, *, improved: bool, epochs: int = 1) -> None:
        """Take note of an evaluation that stands for a number of epochs; only a plateau cares."""
        if self.name != "plateau":
            return
        self.waited = 0 if improved else self.waited + epochs
        if self.waited >= self.every:
            self.drops, self.waited = self.drops + 1, 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        values = asdict(self)
        return {name: values[name] for name in ("drops", "waited")}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self.drops, self.waited = int(state["drops"]), int(state["waited"])


@dataclass
class Best:
    """The best evaluation so far; of equal metrics the one with the lower loss counts."""

    epoch: int = 0
    value: float | None = None
    loss: float = 0.0
    waited: int = 0
    """Epochs since the best one."""
    seen: int = 0
    """The last epoch that was evaluated."""

    def observe(self, epoch: int, value: float, loss: float) -> bool:
        """Take note of an evaluation and return whether it is the best so far."""
        value = -math.inf if math.isnan(value) else value
        improved = self.value is None or (value, -loss) > (self.value, -self.loss)
        if improved:
            self.epoch, self.value, self.loss = epoch, value, loss
        self.seen, self.waited = epoch, epoch - self.epoch
        return improved
