"""A model as stages that run one after the other: its layers, and last what makes a loss of their rows."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import InputError, RecipeError
from weft.graph.message.block import Block
from weft.layers.base import Layer
from weft.layers.stack import Stack
from weft.sizes import parse_bytes
from weft.stores.cached import free_bytes

Ending = Callable[[Tensor], Tensor]
"""From the model's outputs to the loss."""


@dataclass(frozen=True)
class Stages:
    """The layers of a model on the block of a step."""

    model: Stack
    block: Block
    x: Any
    autocast: torch.dtype | None = None

    def __len__(self) -> int:
        return len(self.model.layers)

    def run(self, number: int, h: Any) -> Tensor:
        """Return the rows after a layer."""
        layer: Any = self.model.layers[number]
        with self._cast():
            return self.model.run_layer(number, [self.block] * layer.hops, h)

    def finish(self, rows: list[Tensor]) -> Tensor:
        """Return the outputs, of the rows after every layer."""
        with self._cast():
            return self.model.finish(rows if self.model.jumping else rows[-1:])

    def brought(self) -> int:
        """Return the bytes of rows that other workers have sent so far."""
        return 0

    def twice(self) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
        """Return what a layer is run in the first time, and the second."""
        return nullcontext(), untracked(self.model)

    def _cast(self) -> torch.autocast:
        where = self.block.indptr.device.type
        return torch.autocast(where, dtype=self.autocast, enabled=self.autocast is not None)


def memory_given(
    activation: str, memory: int | str | None, device: torch.device, *, workers: int = 1
) -> int | None:
    """Return the bytes that a step may take, by default a worker's share of what is free; None: no bound."""
    if activation == "keep":
        if memory is not None:
            raise RecipeError(
                "strategy.memory: bounds activation = 'offload' and 'auto'; name one, or leave it out"
            )
        return None
    return (
        int(0.9 * free_bytes(device)) // workers if memory is None else parse_bytes(memory, "strategy.memory")
    )


def stack_of(model: nn.Module) -> Stack:
    """Return the model, or say why it is not run layer by layer."""
    if not isinstance(model, Stack) or not all(isinstance(each, Layer) for each in model.layers):
        raise InputError(
            "strategy.activation: 'auto' runs layers one by one: expected a weft.nn.Stack, "
            f"got {type(model).__name__}; use 'keep'"
        )
    return model


@contextmanager
def untracked(model: nn.Module) -> Iterator[None]:
    """Have norms over all nodes compute as they do, and not count the rows once more, for a while."""
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.training]
    held = [(norm, name, value) for norm in norms for name, value in norm.named_buffers(recurse=False)]
    for norm, name, value in held:
        setattr(norm, name, value.clone())
    try:
        yield
    finally:
        for norm, name, value in held:
            setattr(norm, name, value)
