"""The linear map of a GAT layer together with its two scores a head.

Both come from the same rows, so their gradients meet again at those rows. As one operator, the gradient of
the scores is added to that of the map in place; autograd would make two more tensors of the size of the
values and a third to add them up.
"""

from typing import Any

import torch
from torch import Tensor

from weft.kernels import native
from weft.kernels.registration import define, eager
from weft.kernels.second import plain_gradients


def project(x: Tensor, weight: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return value = x weightᵀ and both halves of value @ columns: [N, O], [N, H], [N, H].

    x is [N, I], weight [O, I] and columns [O, 2 H], all of one type.
    """
    value, first, second = eager(project_op, x, weight, columns)
    return value, first, second


def _forward(x: Tensor, weight: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = _product(x, weight.t())
    scores = x @ (weight.t() @ columns) if x.shape[1] < value.shape[1] else value @ columns
    first, second = scores.chunk(2, dim=1)
    return value, first.contiguous(), second.contiguous()


def _plain(x: Tensor, weight: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
    """Return the same, differentiable by torch's autograd."""
    value = x @ weight.t()
    return value, *(value @ columns).chunk(2, dim=1)


def _backward(
    x: Tensor,
    weight: Tensor,
    columns: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of (x, weight, columns); one that is not wanted is empty."""
    scores = torch.cat([first, second], dim=1)
    d_x: Tensor | None = None
    d_weight: Tensor | None = None
    d_columns: Tensor | None = None
    if wanted[0]:
        d_x = _product(grad, weight).addmm_(scores, columns.t() @ weight)
    if wanted[1] or wanted[2]:
        mixed = scores.t() @ x  # columns' gradient is valueᵀ scores = weight xᵀ scores
        d_columns = weight @ mixed.t()
        d_weight = (grad.t() @ x).addmm_(columns, mixed) if wanted[1] else None
    made = zip((d_x, d_weight, d_columns), wanted)
    d_x, d_weight, d_columns = (x.new_empty(0) if one is None or not want else one for one, want in made)
    return d_x, d_weight, d_columns


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right; on a CPU in fresh huge pages, most of a wide result's time being page faults."""
    if not left.is_cpu:
        return left @ right
    return torch.mm(left, right, out=native.empty((left.shape[0], right.shape[1]), left.dtype))


def _forward_fake(x: Tensor, weight: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, heads = x.shape[0], columns.shape[1] // 2
    return x.new_empty((rows, weight.shape[0])), x.new_empty((rows, heads)), x.new_empty((rows, heads))


def _backward_fake(x: Tensor, weight: Tensor, columns: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(
        like.new_empty(like.shape if want else (0,)) for like, want in zip((x, weight, columns), rest[-1])
    )


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    wanted = [bool(want) for want in ctx.needs_input_grad]
    if torch.is_grad_enabled():  # a gradient of this one is wanted
        return tuple(plain_gradients(_plain, ctx.saved_tensors, wanted, grads))
    made = eager(project_backward_op, *ctx.saved_tensors, *grads, wanted)
    return tuple(grad if want else None for grad, want in zip(made, wanted))


project_backward_op: Any = define(
    "project_backward(Tensor x, Tensor weight, Tensor columns, Tensor grad, Tensor first, Tensor second, "
    "bool[] wanted) -> (Tensor, Tensor, Tensor)",
    reference=_backward,
    fake=_backward_fake,
)

project_op: Any = define(
    "project(Tensor x, Tensor weight, Tensor columns) -> (Tensor, Tensor, Tensor)",
    reference=_forward,
    fake=_forward_fake,
    setup=_setup,
    backward=_gradients,
)
