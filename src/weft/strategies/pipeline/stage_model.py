"""A stage as a module: some layers of a stack, with what stands before the first and behind the last.

It is called with the weights of one version, whatever the model holds meanwhile.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import RecipeError
from weft.layers.learned import LearnedRows
from weft.layers.stack import Stack
from weft.strategies.call import ModelCall
from weft.strategies.pipeline.division import StageDivision
from weft.tasks.base import Task

Weights = dict[str, Tensor]
"""The parameters of a stage by their names in the model."""
_BY_LAYER = ("layers", "norms", "residuals", "drops")


class StageModel(nn.Module):
    """The layers of one stage. The last gives the loss of a micro-batch, the others rows of nodes."""

    def __init__(
        self, model: Stack, division: StageDivision, stage: int, task: Task, call: ModelCall
    ) -> None:
        super().__init__()
        self.model, self.layers = model, division.layers_of(stage)
        self.first, self.last = stage == 0, stage == division.num_stages - 1
        self.task, self.call = task, call
        hops = [int(layer.hops) for layer in model.layers]  # type: ignore[arg-type, union-attr]
        self.hops = hops[self.layers.start : self.layers.stop]
        """The blocks that each layer of the stage takes."""
        self.reach = sum(hops[self.layers.start :])
        """How many hops from the seeds the stage, with those behind it, looks."""

    @property
    def width(self) -> int:
        """The columns of the rows that the stage is given by the one before."""
        return int(self.model.layers[self.layers.start - 1].out_width)  # type: ignore[arg-type]

    def run(self, weights: Mapping[str, Tensor], batch: Any, h: Any, count: int, *, again: bool) -> Tensor:
        """Return what the stage makes of rows with the weights of a version: rows, or the loss.

        `count` is what the sum of losses is divided by. A run that is made again leaves no trace: running
        statistics of batch normalisation have seen the micro-batch.
        """
        held = {f"model.{name}": value for name, value in weights.items()}
        if again:
            held |= {f"model.{name}": value.clone() for name, value in self.model.named_buffers()}
        out: Tensor = functional_call(self, held, (batch, h, count))
        return out

    def forward(self, batch: Any, h: Any, count: int) -> Tensor:
        blocks = batch.blocks
        for number, hops in zip(self.layers, self.hops):
            h, blocks = self.model.run_layer(number, blocks[:hops], h), blocks[hops:]
        if not self.last:
            rows: Tensor = h
            return rows
        outputs = self.task.of_batch(self.model, self.call.checked(self.model.finish([h])), batch)
        return self.task.loss.summed(outputs, self.task.values_of_batch(batch)) / count


def stage_of_name(name: str, division: StageDivision) -> int:
    """Return the stage that a parameter or buffer of a stack belongs to."""
    kind, _, rest = name.partition(".")
    if kind in ("encoder", "input_drop"):
        return 0
    if kind not in _BY_LAYER:
        return division.num_stages - 1  # what is behind the last layer
    layer = int(rest.partition(".")[0])
    return next(stage for stage in range(division.num_stages) if layer in division.layers_of(stage))


def check_staged(model: nn.Module) -> Stack:
    """Return the model, or say why its layers cannot lie on several workers."""
    if not isinstance(model, Stack):
        raise RecipeError(
            f"model: 'pipeline' cuts between the layers of a weft.nn.Stack, got {type(model).__name__}; use "
            "'sampled'"
        )
    if model.jumping:
        raise RecipeError(
            f"model.jumping: {model.jumping!r} reads the rows of every layer, which lie on other workers; "
            "leave it out, or use 'sampled'"
        )
    if any(isinstance(module, LearnedRows) for module in model.modules()):
        raise RecipeError(
            "model: learned rows would be copied with every version of the weights; use 'sampled', or give "
            "nodes features"
        )
    return model


def check_division(model: Stack, division: StageDivision) -> None:
    """Refuse weights that two stages share, and normalisation whose statistics replicas would not share."""
    homes: dict[int, int] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        stage = stage_of_name(name, division)
        if homes.setdefault(id(value), stage) != stage:
            raise RecipeError(f"model: {name} is a weight of two stages; cut elsewhere, or use 'sampled'")
    if division.workers > division.num_stages and any(
        isinstance(each, _BatchNorm) for each in model.modules()
    ):
        raise RecipeError(
            "model.norm: replicas of a stage see other micro-batches, and 'batch' would have running "
            "statistics of each; use 'layer', or strategy.replicas = 1"
        )


def own_parameters(model: Stack, division: StageDivision, stage: int) -> dict[str, nn.Parameter]:
    """Return the weights that a stage trains, by name."""
    return {
        name: value
        for name, value in model.named_parameters()
        if value.requires_grad and stage_of_name(name, division) == stage
    }


def frozen(parameters: Mapping[str, nn.Parameter]) -> Weights:
    """Return copies that nobody changes, to differentiate by."""
    with torch.no_grad():
        return {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
