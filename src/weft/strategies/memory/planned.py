"""A model run layer by layer, and what each keeps for backward kept, made again or put aside, as planned."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from weft.errors import RecipeError
from weft.process import return_freed
from weft.sizes import shown
from weft.strategies.memory.aside import Aside, aside_seconds
from weft.strategies.memory.layer_parts import Ending, Stages
from weft.strategies.memory.programme import LayerChoice, LayerNeed, WayCost, cheapest, cost_of
from weft.strategies.memory.trial import Role, try_layers

_SPARE = 0.8
"""Of the memory given, what is planned for: kernels take some for themselves as they run."""


@dataclass(frozen=True)
class MemoryPlan:
    """What is done with what each layer keeps, and what that costs."""

    memory: int
    needs: Sequence[LayerNeed]
    choices: Sequence[LayerChoice]
    """Of each layer, and of what follows them."""
    roles: Sequence[Sequence[Role]]
    cost: WayCost
    """The seconds more than of keeping all, and the most bytes at a time."""
    everything: int
    """The bytes that keeping all would take."""
    least: int
    """The memory with which there is a plan at all."""

    def told(self) -> dict[str, Any]:
        """Return the plan as the event of a run tells it."""
        return {
            "memory": self.memory,
            "peak": self.cost.peak,
            "everything": self.everything,
            "least": self.least,
            "seconds": self.cost.seconds,
            "layers": [_told(*each) for each in zip(self.needs[:-1], self.choices[:-1])],
        }


def _told(need: LayerNeed, choice: LayerChoice) -> dict[str, Any]:
    aside = sum(size for size, moved in zip(need.kept, choice.aside) if moved)
    made = sum(need.kept) if choice.again else 0
    aside += need.read if choice.read_aside else 0
    what = "recompute" if choice.again else "offload" if aside else "keep"
    return {"choice": what, "bytes": sum(need.kept), "again": made, "aside": aside, "seconds": need.seconds}


class PlannedLayers:
    """Runs a model in so many bytes, beside the graph and the weights; the first step makes the plan."""

    def __init__(self, memory: int, device: torch.device, folder: Path | None) -> None:
        self.memory, self.device, self.folder = memory, device, folder
        self.plan: MemoryPlan | None = None

    def make(self, stages: Stages, ending: Ending) -> MemoryPlan:
        """Try the layers and return the plan, or say why there is none."""
        return_freed()
        tried = try_layers(stages, ending)
        gradients = sum(each.nbytes for each in stages.model.parameters() if each.requires_grad)
        resident = tried.resident + gradients
        room = int(_SPARE * self.memory) - resident
        rate = aside_seconds(self.device, self.folder)
        choices = cheapest(tried.needs, room, rate)
        least = int((max(each.room for each in tried.needs) + resident) / _SPARE) + 1
        if choices is None:
            raise RecipeError(
                f"strategy.memory: a layer alone takes {shown(least)} with all else made again or put aside, "
                f"got {shown(self.memory)}; give more, a narrower model, or activation = 'offload'"
            )
        cost = cost_of(tried.needs, choices, rate)
        everything = cost_of(tried.needs, [_kept(each) for each in tried.needs], rate).peak + resident
        cost = WayCost(cost.seconds, cost.peak + resident)
        self.plan = MemoryPlan(self.memory, tried.needs, choices, tried.roles, cost, everything, least)
        return self.plan

    def __call__(self, stages: Stages) -> Tensor:
        """Return the outputs of all nodes; differentiable, like those of the model."""
        if self.plan is None:
            raise AssertionError("a run begins with a plan")
        plan, put = self.plan, _Put(self.folder)
        rows: list[Tensor] = []
        h: Any = stages.x
        for number in range(len(stages)):
            choice, after = plan.choices[number], plan.choices[number + 1]
            hooks = _Hooks(put, choice, after.read_aside, plan.roles[number], h if number else None)
            with saved_tensors_hooks(hooks.pack, _unpack):
                h = _run(stages, number, h, again=choice.again)
            rows = [*rows, h] if stages.model.jumping else [h]
        last = _Hooks(put, plan.choices[-1], False, (), h)
        with saved_tensors_hooks(last.pack, _unpack):
            return stages.finish(rows)


def _kept(need: LayerNeed) -> LayerChoice:
    return LayerChoice(False, False, (False,) * len(need.kept))


def _run(stages: Stages, number: int, h: Any, *, again: bool) -> Tensor:
    if not again:
        return stages.run(number, h)
    # What checkpoint is given comes back as another tensor; features are known by which one they are.
    given = (h,) if number else ()
    out: Tensor = checkpoint(
        lambda *read: stages.run(number, *(read or (h,))),
        *given,
        use_reentrant=False,
        preserve_rng_state=False,  # draws are functions of the clock
        context_fn=stages.twice,
    )
    return out


@dataclass
class _Put:
    """What one pass has put aside: a storage that several operators keep is there once."""

    folder: Path | None
    places: dict[int, tuple[Any, Aside]] = field(default_factory=dict)

    def put(self, storage: torch.UntypedStorage) -> Aside:
        held, aside = self.places.get(storage._cdata, (None, None))
        if held is None or aside is None or held() is not storage:
            aside = Aside(storage, self.folder)
            self.places[storage._cdata] = weakref.ref(storage), aside
        return aside


@dataclass(frozen=True)
class _View:
    """A tensor in memory that was put aside."""

    aside: Aside
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


class _Hooks:
    """What becomes of each tensor that the operators of a layer keep."""

    def __init__(
        self, put: _Put, choice: LayerChoice, made_aside: bool, roles: Sequence[Role], read: Tensor | None
    ) -> None:
        self.put, self.choice, self.made_aside, self.roles = put, choice, made_aside, roles
        self.read = None if read is None else read.untyped_storage()
        self.count = 0

    def pack(self, tensor: Tensor) -> Tensor | _View:
        """Return what is kept in its place."""
        role: Role = None if self.count >= len(self.roles) else self.roles[self.count]
        self.count += 1
        storage = tensor.untyped_storage()
        if not self._moves("read" if storage is self.read else role):
            return tensor.detach()
        offset = int(tensor.storage_offset())
        return _View(self.put.put(storage), tensor.dtype, offset, tensor.shape, tensor.stride())

    def _moves(self, role: Role) -> bool:
        if role == "read":
            return self.choice.read_aside
        if self.choice.again or role is None:
            return False
        return self.made_aside if role == "made" else self.choice.aside[role]


def _unpack(kept: Tensor | _View) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    made = torch.empty(0, dtype=kept.dtype, device=kept.aside.device)
    return made.set_(kept.aside.storage(), kept.offset, kept.size, kept.stride)
