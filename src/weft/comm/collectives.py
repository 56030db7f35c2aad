"""A sum over all ranks that gradients pass through; it is its own adjoint: ⟨E x, y⟩ = ⟨x, E y⟩.

Every member must call it, and run backward through it, in the same order; none may leave one out.
"""

from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import OTHER, Label
from weft.kernels.second import here_only


def all_reduce_sum(group: Group, x: Tensor, *, label: Label = OTHER) -> Tensor:
    """Return the sum over members; the gradient is the sum of their gradients.

    Right where each member's loss is a part of one total. Where every member computes the *same* loss from
    the sum, each of them contributes its copy.
    """
    result: Tensor = _AllReduce.apply(x, group, label)  # type: ignore[no-untyped-call]
    return result


def _backward(label: Label) -> Label:
    return label._replace(direction="backward")


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, label: Label) -> Tensor:
        ctx.group, ctx.label = group, label
        return group.all_reduce(x.detach().clone(), label=label).wait()

    @staticmethod
    @here_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Gradients may be expanded views: the reduction in place needs memory of its own.
        own = gradients[0].clone(memory_format=torch.contiguous_format)
        return ctx.group.all_reduce(own, label=_backward(ctx.label)).wait(), None, None
