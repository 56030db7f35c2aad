"""Gradients in float16: scaled up where they begin, so that small ones are not lost, and down before a step.

float16 ends at 65,504 and has nothing below 6e-8. The gradient of the outputs is multiplied by a scale, so
every gradient behind it is; before a step they are divided by it. Where one is not finite the step is left
out and the scale halved; after 2,000 good steps it is doubled
(Micikevicius et al., Mixed precision training, 2018).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FIRST = 2.0**16
GROWTH = 2.0
EVERY = 2000
"""Good steps before the scale grows."""


class LossScale:
    """The scale of a run, the same on every worker.

    `agree` gives the largest of a number over all workers: a gradient that is not finite on one of them,
    which may own a part of the weights, leaves the step out on all.
    """

    def __init__(self, device: torch.device, agree: Callable[[float], list[float]]) -> None:
        # in the device's memory, where steps that were captured read it
        self.factor = torch.tensor(FIRST, device=device)
        self.good = 0
        self._agree = agree

    def up(self, outputs: Tensor) -> Tensor:
        """Return the outputs; their gradient is scaled up on its way back."""
        scaled: Tensor = _Scaled.apply(outputs, self.factor)  # type: ignore[no-untyped-call]
        return scaled

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Have every step of an optimiser take gradients of the right size, or nothing."""
        optimizer.register_step_pre_hook(self._before_step)

    def state(self) -> dict[str, float]:
        """Return what a checkpoint must hold."""
        return {"factor": float(self.factor), "good": self.good}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a checkpoint's state."""
        self.factor.fill_(state["factor"])
        self.good = int(state["good"])

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for parameter in trained:
            parameter.grad /= self.factor
        finite = [parameter.grad.isfinite().all() for parameter in trained]
        (lost,) = self._agree(0.0 if not finite or bool(torch.stack(finite).all()) else 1.0)
        if lost:
            for parameter in trained:
                parameter.grad = None  # an optimiser passes over it
            self.factor /= GROWTH
            self.good = 0
            return
        self.good += 1
        if self.good == EVERY:
            self.factor *= GROWTH
            self.good = 0


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return gradients[0] * factor, None
