"""Collectives that gradients pass through, each the adjoint of another: ⟨E x, y⟩ = ⟨x, E* y⟩ over all ranks.

Every member must call them, and run backward through them, in the same order; none may leave one out.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import OTHER, Label


def all_gather_rows(
    group: Group, x: Tensor, counts: Sequence[int] | None = None, *, label: Label = OTHER
) -> Tensor:
    """Return the rows of all members one after the other; gradients are summed at the owner of a row."""
    counts = [len(x)] * group.size if counts is None else list(counts)
    result: Tensor = _AllGather.apply(x, group, counts, label)  # type: ignore[no-untyped-call]
    return result


def reduce_scatter_rows(group: Group, x: Tensor, counts: Sequence[int], *, label: Label = OTHER) -> Tensor:
    """Return the sum over members of one's own block of rows; its gradient goes to every member."""
    result: Tensor = _ReduceScatter.apply(x, group, list(counts), label)  # type: ignore[no-untyped-call]
    return result


def all_reduce_sum(group: Group, x: Tensor, *, label: Label = OTHER) -> Tensor:
    """Return the sum over members; the gradient is the sum of their gradients.

    Right where each member's loss is a part of one total. Where every member computes the *same* loss from
    the sum, each of them contributes its copy.
    """
    result: Tensor = _AllReduce.apply(x, group, label)  # type: ignore[no-untyped-call]
    return result


def _backward(label: Label) -> Label:
    return label._replace(direction="backward")


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, counts: list[int], label: Label) -> Tensor:
        ctx.group, ctx.counts, ctx.label = group, counts, label
        return _fresh(group.all_gather(x, counts, label=label).wait(), x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        moved = ctx.group.reduce_scatter(gradients[0], ctx.counts, label=_backward(ctx.label))
        return moved.wait(), None, None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, counts: list[int], label: Label) -> Tensor:
        ctx.group, ctx.counts, ctx.label = group, counts, label
        return group.reduce_scatter(x, counts, label=label).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (
            ctx.group.all_gather(gradients[0], ctx.counts, label=_backward(ctx.label)).wait(),
            None,
            None,
            None,
        )


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, label: Label) -> Tensor:
        ctx.group, ctx.label = group, label
        return group.all_reduce(x.detach().clone(), label=label).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients may be expanded views: the reduction in place needs memory of its own.
        own = gradients[0].clone(memory_format=torch.contiguous_format)
        return ctx.group.all_reduce(own, label=_backward(ctx.label)).wait(), None, None


def _fresh(result: Tensor, given: Tensor) -> Tensor:
    """Return a result that is not the input itself, which a group of one hands back."""
    return result.clone() if result is given else result
