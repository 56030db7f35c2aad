"""Backward: gradients in this process, or summed over all ranks, in buckets, while backward still runs.

A bucket departs as soon as all its gradients are there and the buckets before it have departed, so the order
is the same on every rank. Buckets travel in a group of their own: a rank that has no gradient for some
parameter sends its bucket late, and that must not change the order of anything else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.strategies.norm import make_global, make_local

Chosen = Callable[[nn.Module], list[nn.Parameter]]
BUCKET_BYTES = 1 << 20
_LABEL = Label("gradient", direction="backward")


class PlainReducer:
    """Backward in one process: all weights are trained here, and all gradients are here.

    It also says what this worker trains of a model and what others do.
    """

    @property
    def scattered(self) -> bool:
        """Whether weights, or what the optimiser keeps of them, lie on other workers, too."""
        return False

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be trained like this."""

    def prepare(self, model: nn.Module) -> None:
        """Make a model ready for training and evaluation; called by all workers."""

    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> AbstractContextManager[Any]:
        """Return what the steps of an epoch are in."""
        return nullcontext()

    def weights(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return what forward and backward of a step are in: the model has the weights that are trained."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients from a loss, those of all workers together."""
        if loss.requires_grad:  # of no target there may be none
            loss.backward()  # type: ignore[no-untyped-call]

    def add_up(self) -> None:
        """Make the gradients that are there those of all workers together; called by all."""

    def meets(self, step: int) -> bool:
        """Return whether all workers have taken so many steps, and may agree on what comes next."""
        return True

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this worker trains, for its optimiser: all that the model does not hold fixed."""
        return [each for each in model.parameters() if each.requires_grad]

    def gather(self, model: nn.Module) -> None:
        """Bring weights that other workers train into the model, before anybody reads it; called by all."""

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return an optimiser's state, by `parameter.name`, with what other workers keep; called by all."""
        return dict(state)

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return of what `joined_state` gave what this worker's optimiser keeps."""
        return dict(state)

    def close(self) -> None:
        """Let go of the model."""


class Summed(PlainReducer):
    """Backward on several workers: gradients are summed, and batches normalised over the rows of all.

    `counted` says which of this worker's rows count, where it also holds replicas of others; `chosen` whose
    gradients are summed, by default those of all parameters.
    """

    def __init__(self, group: Group, counted: Tensor | None = None, chosen: Chosen | None = None) -> None:
        self.group, self.counted = group, counted
        self.chosen: Chosen = chosen or (lambda model: list(model.parameters()))
        self._model: nn.Module | None = None
        self._buckets: GradientReducer | None = None

    def prepare(self, model: nn.Module) -> None:
        """Have the model's gradients leave as they come, and its norms look at all workers' rows."""
        if self._model is model:
            return
        self.close()
        make_global(model, self.group, self.counted)
        # A group of its own: a rank may send a bucket late, between exchanges of others.
        lane = self.group.subgroup(self.group.ranks, purpose="gradients")
        self._model, self._buckets = model, GradientReducer(self.chosen(model), lane)

    def backward(self, loss: Tensor) -> None:
        """Sum the gradients over workers; without a loss this one sends zeros."""
        assert self._buckets is not None, "prepare makes it"
        self._buckets.begin()
        super().backward(loss)
        self._buckets.finish()

    def add_up(self) -> None:
        """Sum the gradients that are there already."""
        assert self._buckets is not None, "prepare makes it"
        self._buckets.begin()
        self._buckets.finish()

    def close(self) -> None:
        """Take the hooks off the model, and give it back its own layers."""
        if self._buckets is not None:
            self._buckets.close()
        if self._model is not None:
            make_local(self._model)
        self._model, self._buckets = None, None


def reducer_of(group: Group, chosen: Chosen | None = None) -> PlainReducer:
    """Return what sums gradients over a group, as `Summed` does; one process has nothing to sum."""
    return Summed(group, chosen=chosen) if group.size > 1 else PlainReducer()


@dataclass
class _Bucket:
    parameters: list[nn.Parameter]
    missing: set[int] = field(default_factory=set)
    buffer: Tensor | None = None
    pending: Pending | None = None


class GradientReducer:
    """Sums gradients: `begin()` before backward, `finish()` after it. A parameter unused here counts zero."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        self.group = group
        # Backward reaches the last parameters first.
        self.buckets = [_Bucket(bucket) for bucket in _fill(list(reversed(parameters)))]
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.parameters}
        self._next = len(self.buckets)  # nothing departs outside of begin() … finish()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
            for bucket in self.buckets
            for parameter in bucket.parameters
        ]

    def begin(self) -> None:
        """Expect the gradients of one backward pass."""
        self._next = 0
        for bucket in self.buckets:
            bucket.missing = {id(parameter) for parameter in bucket.parameters}

    def finish(self) -> None:
        """Send what is left, wait for all, and leave the sums in `.grad`; None where no rank has any."""
        while self._next < len(self.buckets):
            self._depart()
        for bucket in self.buckets:
            _take(bucket)

    def close(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _arrived(self, parameter: Tensor) -> None:
        self._bucket_of[id(parameter)].missing.discard(id(parameter))
        # A bucket that is full before its turn waits: ranks may fill them in different orders, and
        # collectives are matched by order alone.
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self._depart()

    def _depart(self) -> None:
        bucket = self.buckets[self._next]
        self._next += 1
        bucket.buffer = _packed(bucket.parameters)
        bucket.pending = self.group.all_reduce(bucket.buffer, label=_LABEL)


def _fill(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Give runs of parameters of one dtype of about a bucket's size."""
    bucket: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        # About 1 MiB: large enough that latency is small beside travel, small enough that the first departs
        # early in backward.
        if bucket and (size >= BUCKET_BYTES or bucket[0].dtype != parameter.dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel() * parameter.element_size()
    if bucket:
        yield bucket


def _packed(parameters: list[nn.Parameter]) -> Tensor:
    """Return all gradients in a row, and after them for each parameter whether there is one."""
    grads = [p.new_zeros(p.numel()) if p.grad is None else p.grad.detach().reshape(-1) for p in parameters]
    # Told with the gradients: where no rank has one, .grad stays None, and an optimiser with momentum or
    # decay leaves the parameter alone, as in one process.
    there = torch.tensor([p.grad is not None for p in parameters])
    return torch.cat([*grads, there.to(grads[0])])


def _take(bucket: _Bucket) -> None:
    assert bucket.pending is not None, "every bucket has departed"
    summed = bucket.pending.wait()
    count = len(bucket.parameters)
    there = summed[-count:].tolist()
    sizes = [parameter.numel() for parameter in bucket.parameters]
    parts = torch.split(summed[:-count], sizes)
    for parameter, part, ranks in zip(bucket.parameters, parts, there):
        if ranks == 0:
            continue
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(part.view_as(parameter))
    bucket.buffer, bucket.pending = None, None
