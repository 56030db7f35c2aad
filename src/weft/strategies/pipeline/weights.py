"""Weights that are trained stage by stage, and one model again where somebody reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.layers.stack import Stack
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.plan import StagePlan
from weft.strategies.pipeline.stage_model import own_parameters, stage_of_name
from weft.strategies.reducer import PlainReducer

_WEIGHTS = Label("stage weights")


class StageWeights(PlainReducer):
    """Each worker trains the weights of its stage; an evaluation and a checkpoint have those of all."""

    def __init__(self, group: Group, plan: StagePlan) -> None:
        self.group, self.plan = group, plan
        self._model: Stack | None = None

    @property
    def scattered(self) -> bool:
        """Whether there are other stages."""
        return self.group.size > 1

    def check_model(self, model: nn.Module) -> None:
        """Cut the model into stages."""
        self._model = self.plan.settle(model)

    @property
    def division(self) -> StageDivision:
        """Who runs what."""
        return self.plan.division

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains; of a stage without weights, a number that nothing changes."""
        held = [*own_parameters(self.plan.settle(model), self.division, self._stage).values()]
        return held or [nn.Parameter(torch.zeros(1))]

    def gather(self, model: nn.Module) -> None:
        """Bring weights and statistics of all stages into the model, each from its first worker."""
        if self.group.size == 1:
            return
        state = model.state_dict()
        for stage in range(self.division.num_stages):
            names = [name for name in state if stage_of_name(name, self.division) == stage]
            _share(self.group, self.division.ranks(stage).start, [state[name] for name in names])

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return an optimiser's state as of one that has all weights, whatever the stages."""
        own = self._places(self._stage)
        told = {f"{own[int(index)]}.{rest}": value for index, rest, value in _split(state)}
        if self.group.size == 1:
            return told
        kinds = {name: [list(value.shape), _word(value)] for name, value in sorted(told.items())}
        joined: dict[str, Tensor] = {}
        everyone = self.group.all_gather_json(kinds)
        for stage in range(self.division.num_stages):
            root = self.division.ranks(stage).start
            mine = root == self.group.rank
            held = {
                name: told[name].clone() if mine else torch.empty(shape, dtype=getattr(torch, word))
                for name, (shape, word) in everyone[root].items()
            }
            _share(self.group, root, [*held.values()])
            joined |= held
        return joined

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what `joined_state` made, of the weights of this stage."""
        places = {place: number for number, place in enumerate(self._places(self._stage))}
        return {
            f"{places[int(index)]}.{rest}": value
            for index, rest, value in _split(state)
            if int(index) in places
        }

    @property
    def _stage(self) -> int:
        return self.division.place(self.group.rank)[0]

    def _places(self, stage: int) -> list[int]:
        """Return the places of a stage's weights among all that are trained."""
        assert self._model is not None, "the model is checked first"
        names = [name for name, value in self._model.named_parameters() if value.requires_grad]
        return [place for place, name in enumerate(names) if stage_of_name(name, self.division) == stage]


def _split(state: Mapping[str, Tensor]) -> list[tuple[str, str, Tensor]]:
    """Return (place of the weight, name of the state, value)."""
    return [(*name.split(".", 1), value) for name, value in state.items()]  # type: ignore[misc]


def _share(group: Group, root: int, tensors: Sequence[Tensor]) -> None:
    """Fill tensors on all members with those of one, those of a type in one message."""
    for dtype in dict.fromkeys(each.dtype for each in tensors):
        some = [each for each in tensors if each.dtype == dtype and each.numel()]
        if not some:
            continue
        flat = group.broadcast(torch.cat([each.detach().reshape(-1) for each in some]), root, label=_WEIGHTS)
        if group.rank != root:
            for each, part in zip(some, torch.split(flat, [each.numel() for each in some])):
                each.detach().copy_(part.view_as(each))


def _word(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")
