"""Each layer by itself, forward and backward, to see how long it takes, in how many bytes, and what it keeps.

Nothing is learned by it: gradients are thrown away, and the counts of norms stay. Beside a layer lies only
what it reads, so a trial takes no more memory than the most frugal of plans.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from weft.strategies.memory.aside import finish
from weft.strategies.memory.held import HeldBytes, tensors_in
from weft.strategies.memory.layer_parts import Ending, Stages, untracked
from weft.strategies.memory.programme import LayerNeed

Role = Literal["read", "made"] | int | None
"""What a kept tensor is: what the layer reads or gives, one of its own by number, or nobody's."""


@dataclass
class Trial:
    """What was found."""

    needs: list[LayerNeed] = field(default_factory=list)
    """Of each layer, and of what follows them."""
    roles: list[list[Role]] = field(default_factory=list)
    """For each layer what its kept tensors are, in the order in which it keeps them."""
    resident: int = 0
    """Bytes of what the first pass over the graph leaves there for all others."""


def try_layers(stages: Stages, ending: Ending) -> Trial:
    """Run each layer twice by itself: the first time may make what stays."""
    found, watch, model = Trial(), HeldBytes(), stages.model
    params = [each for each in model.parameters() if each.requires_grad]
    for held in (*tensors_in((stages.block, stages.x)), *model.parameters(), *model.buffers()):
        watch.hold(held)
    before, rows = watch.held, []
    with watch, untracked(model):
        h: Any = stages.x
        for number in range(len(stages)):
            layer = partial(stages.run, number)
            _Layer(watch, h, number > 0).run(layer, params)
            tried, before_it = _Layer(watch, h, number > 0), stages.brought()
            h = tried.run(layer, params)
            brought = stages.brought() - before_it
            found.needs.append(replace(tried.need(h), brought=brought))
            found.roles.append(tried.roles(h))
            rows.append(h)
            if not model.jumping:
                rows = rows[-1:]
        found.needs.append(_last(watch, stages, rows, ending, params))
        found.resident = watch.held - before - sum(each.nbytes for each in rows)
    if model.jumping:
        found.needs = list(_jumping(found.needs, [each.nbytes for each in rows]))
    return found


def _last(
    watch: HeldBytes, stages: Stages, rows: list[Tensor], ending: Ending, params: Sequence[Tensor]
) -> LayerNeed:
    """Return what the loss takes."""
    tried = _Layer(watch, rows[-1], True)
    tried.run(lambda h: ending(stages.finish([*rows[:-1], h])), params)
    return tried.need(None)


def _jumping(needs: list[LayerNeed], sizes: list[int]) -> Iterable[LayerNeed]:
    """Give what layers take where the loss reads the rows after each of them.

    Forward these lie there until the end, also those that no layer keeps; backward as many gradients do.
    """
    for number, need in enumerate(needs):
        yield replace(need, room=need.room + sum(sizes[: max(0, number - 1)]))


class _Layer:
    """One run of one layer."""

    def __init__(self, watch: HeldBytes, h: Any, learns: bool) -> None:
        self.watch = watch
        self.h = h.detach().requires_grad_() if learns else h
        self.read = h.nbytes if learns else 0
        self.kept: list[tuple[int, int]] = []
        """Where each kept tensor lies, -1 for what was there before, and the bytes there."""
        self.seconds, self.room = 0.0, 0

    def run(self, layer: Callable[[Any], Tensor], params: Sequence[Tensor]) -> Tensor:
        """Run it forward and backward, and return what it gives."""
        watch, learns = self.watch, self.read > 0
        start, self.mark = watch.held, watch.made
        watch.peak = start
        device = params[0].device if params else torch.device("cpu")
        finish(device)
        began = time.perf_counter()
        with torch.enable_grad(), saved_tensors_hooks(self._pack, lambda kept: kept):
            out = layer(self.h)
        finish(device)
        self.seconds = time.perf_counter() - began
        # where the layer runs again, the gradient of what it gives is there already
        forward = watch.peak + out.nbytes
        if out.requires_grad:
            leaves = [*([self.h] if learns else []), *params]
            torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)
        self.room = max(watch.peak, forward) - start + self.read
        return out.detach()

    def _pack(self, tensor: Tensor) -> Tensor:
        own = self.watch.made_since(tensor, self.mark)
        storage = tensor.untyped_storage()
        reads = isinstance(self.h, Tensor) and _place(self.h) == storage._cdata and self.read > 0
        self.kept.append((storage._cdata if own or reads else -1, storage.nbytes()))
        return tensor.detach()

    def need(self, made: Tensor | None) -> LayerNeed:
        """Return what the layer takes."""
        roles = self.roles(made)
        sizes = {role: size for role, (_, size) in zip(roles, self.kept) if isinstance(role, int)}
        return LayerNeed(
            self.seconds, self.room, tuple(sizes.values()), self.read, "read" in roles, "made" in roles
        )

    def roles(self, made: Tensor | None) -> list[Role]:
        """Return what each kept tensor is; those that share memory are one."""
        known: dict[int, Role] = {-1: None}
        if self.read:
            known[_place(self.h)] = "read"
        if made is not None:
            known.setdefault(_place(made), "made")
        count = 0
        for place, _ in self.kept:
            if place not in known:
                known[place], count = count, count + 1
        return [known[place] for place, _ in self.kept]


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
