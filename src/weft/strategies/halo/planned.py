"""Own rows of a worker trained on in bounded memory: what backward needs is kept, made again or put aside.

A layer that runs again is given the rows of others that came when it ran first. So nothing is sent twice, and
each worker may choose for itself.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import RecipeError
from weft.exchanges.base import Exchange
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.local import LocalGraph
from weft.strategies.memory.layer_parts import Stages, stack_of, untracked
from weft.strategies.memory.planned import PlannedLayers
from weft.strategies.norm import GlobalBatchNorm
from weft.strategies.shared import Shared

_SENT = object()
"""What stands for a transfer whose rows are here."""


class RepeatedExchange:
    """An exchange that can give the rows it brought once more."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.bytes = 0
        """Of all rows that it brought."""
        self._keep: list[Tensor] | None = None
        self._give: Iterator[Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def start(self, h: Tensor) -> Any:
        """Send what others need of `h`; nothing, where it was sent."""
        return self.exchange.start(h) if self._give is None else _SENT

    def finish(self, transfer: Any) -> Tensor:
        """Return the rows of others."""
        if self._give is not None:
            return next(self._give)
        rows = self.exchange.finish(transfer)
        self.bytes += rows.nbytes
        if self._keep is not None:
            self._keep.append(rows.detach().requires_grad_(rows.requires_grad))
        return rows

    def gather(self, h: Tensor) -> Tensor:
        """Return the rows of others."""
        return self.finish(self.start(h))

    @contextmanager
    def keeping(self, held: list[Tensor]) -> Iterator[None]:
        """Keep what is brought meanwhile."""
        self._keep = held
        try:
            yield
        finally:
            self._keep = None

    @contextmanager
    def giving(self, held: list[Tensor]) -> Iterator[None]:
        """Give what was kept, in its order, instead of having anything brought."""
        self._give = iter(held)
        try:
            yield
        finally:
            self._give = None


@dataclass(frozen=True)
class WorkerStages(Stages):
    """The layers of a model on the block of a worker."""

    repeated: RepeatedExchange = field(kw_only=True)

    def brought(self) -> int:
        return self.repeated.bytes

    def twice(self) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
        held: list[Tensor] = []
        return self.repeated.keeping(held), self._again(held)

    @contextmanager
    def _again(self, held: list[Tensor]) -> Iterator[None]:
        with untracked(self.model), self.repeated.giving(held):
            yield


class PlannedParts(HaloParts):
    """The parts of a worker, and a plan of what the layers of a model keep, made in the first step."""

    def __init__(
        self, shared: Shared, graph: LocalGraph, *given: Any, memory: int, folder: Path | None, **options: Any
    ) -> None:
        super().__init__(shared, graph, *given, **options)
        self.layers = PlannedLayers(memory, shared.device, folder)

    @property
    def lends_rows(self) -> bool:
        """Not: layers may be run again in backward."""
        return False

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be run layer by layer, or not by one worker without the others."""
        together = any(isinstance(each, _BatchNorm | GlobalBatchNorm) for each in model.modules())
        if self.shared.group.size > 1 and together:
            raise RecipeError(
                "strategy.activation: 'auto' has each worker run layers again by itself, and batch norm is "
                "over the rows of all; use another model.norm, or activation = 'keep'"
            )
        stack_of(model)

    def training_rows(self, model: nn.Module) -> Tensor:
        """Return the model's rows of own nodes."""
        stack, call, count = stack_of(model), self.shared.call, self.whole.num_dst
        block = self.training_block()
        repeated: Any = RepeatedExchange(self.exchange)
        self.whole.exchange = repeated
        stages = WorkerStages(stack, block, self.graph.x, call.autocast, repeated=repeated)
        if torch.is_grad_enabled() and self.layers.plan is None:
            plan = self.layers.make(stages, lambda h: self.loss_of(model, call.checked(h, count)))
            self.shared.events.write("memory_plan", **plan.told())
            self.exchange.begin_step()
            self.whole.forget()
        return call.checked(self.layers(stages), count)
