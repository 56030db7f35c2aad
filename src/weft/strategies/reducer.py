"""Sums the gradients of parameters over all ranks, in buckets, while backward still runs.

A bucket departs as soon as all its gradients are there and the buckets before it have departed, so the order
is the same on every rank. Buckets travel in a group of their own: a rank that has no gradient for some
parameter sends its bucket late, and that must not change the order of anything else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending

BUCKET_BYTES = 1 << 20
_LABEL = Label("gradient", direction="backward")


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
        self.buckets = [_Bucket(held) for held in _fill(list(reversed(parameters)))]
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
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self._depart()

    def _depart(self) -> None:
        bucket = self.buckets[self._next]
        self._next += 1
        bucket.buffer = _packed(bucket.parameters)
        bucket.pending = self.group.all_reduce(bucket.buffer, label=_LABEL)


def _fill(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Give runs of parameters of one dtype of about a bucket's size."""
    held: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if held and (size >= BUCKET_BYTES or held[0].dtype != parameter.dtype):
            yield held
            held, size = [], 0
        held.append(parameter)
        size += parameter.numel() * parameter.element_size()
    if held:
        yield held


def _packed(parameters: list[nn.Parameter]) -> Tensor:
    """Return all gradients in a row, and after them for each parameter whether there is one."""
    grads = [p.new_zeros(p.numel()) if p.grad is None else p.grad.detach().reshape(-1) for p in parameters]
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
