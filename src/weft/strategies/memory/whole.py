"""A whole graph trained on in bounded memory: what backward needs is kept, made again or put aside."""

from pathlib import Path

import torch
from torch import Tensor, nn

from weft.graph.graph import Graph
from weft.strategies.memory.layer_parts import Stages, stack_of
from weft.strategies.memory.planned import PlannedLayers
from weft.strategies.shared import Shared
from weft.strategies.whole import Whole


class PlannedWhole(Whole):
    """The graph itself, and a plan of what the layers of a model keep, made in the first step."""

    def __init__(self, shared: Shared, graph: Graph, *, memory: int, folder: Path | None) -> None:
        super().__init__(shared, graph)
        self.layers = PlannedLayers(memory, shared.device, folder)

    @property
    def lends_rows(self) -> bool:
        """Not: layers may be run again in backward."""
        return False

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be run layer by layer."""
        stack_of(model)

    def training_rows(self, model: nn.Module) -> Tensor:
        stack, call, count = stack_of(model), self.shared.call, self.graph.num_nodes
        block = self.training_block()
        stages = Stages(stack, block, self.graph.x, call.autocast)
        if torch.is_grad_enabled() and self.layers.plan is None:
            plan = self.layers.make(stages, lambda h: self.loss_of(model, call.checked(h, count)))
            self.shared.events.write("memory_plan", **plan.told())
        return call.checked(self.layers(stages), count)

    def end_step(self) -> None:
        """Take the clock off the block: layers that were run again have drawn by it."""
        self.release(self.graph.block(self.shared.clock))
