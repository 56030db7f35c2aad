"""How a strategy calls a model: with which blocks, in which precision, and what its rows must be."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.layers.base import Layer
from weft.strategies.loss_scale import LossScale
from weft.tasks.base import Task


class ModelCall:
    """Calls models in a precision, checks what they give, and has small gradients of it not vanish."""

    def __init__(self, task: Task, autocast: torch.dtype | None, scale: LossScale | None) -> None:
        self.task, self.autocast, self.scale = task, autocast, scale

    def __call__(
        self, model: nn.Module, blocks: Any, x: Any, *, device: str, num_rows: int | None = None
    ) -> Tensor:
        """Return what a model gives, in at least 32 bits, or say why the task can do nothing with it.

        `num_rows` is how many rows it must have; None: whatever it has.
        """
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            outputs: Any = model(called(model, blocks), x)
        return self.checked(outputs, num_rows)

    def checked(self, outputs: Any, num_rows: int | None = None) -> Tensor:
        """Return what a model gave, as `__call__` does."""
        self.task.check_rows(outputs, num_rows)
        # Losses are summed in at least 32 bits whatever the storage.
        wide: Tensor = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
        return wide if self.scale is None else self.scale.up(wide)


def called(model: nn.Module, blocks: Any) -> Any:
    """Return what a model is called with beside x: the blocks, or the only one where it takes `block`."""
    if next(iter(signature(model.forward).parameters), "") != "block":
        return blocks
    if len({id(block) for block in blocks}) > 1:
        raise InputError(
            f"{type(model).__name__}.forward takes one block, a batch has one a hop: write forward(blocks, "
            "x) and use blocks[0] in the first layer, blocks[1] in the next"
        )
    return blocks[0]


class SameBlock(Sequence[Block]):
    """The block of a whole graph as the list of blocks a model is called with: every hop sees all of it."""

    def __init__(self, block: Block, hops: int) -> None:
        self.block = block
        self.hops = hops

    def __len__(self) -> int:
        return self.hops

    def __getitem__(self, index: Any) -> Any:
        return [self.block] * len(range(self.hops)[index]) if isinstance(index, slice) else self.block

    def __iter__(self) -> Iterator[Block]:
        return iter([self.block] * self.hops)


def hops_of(model: nn.Module) -> int:
    """Return how many blocks a model takes; for one that does not say, as many as it could have layers."""
    known = known_hops(model)
    return len(list(model.modules())) if known is None else known


def known_hops(model: nn.Module) -> int | None:
    """Return how many blocks a model takes; None where neither it nor its layers say."""
    hops = getattr(model, "hops", None)
    layers = [module.hops for module in model.modules() if isinstance(module, Layer)]
    return int(hops) if hops is not None else sum(layers) or None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Have a model in evaluation mode for a while; then, also after an error, every module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
