"""Rows of a matrix by index, with a backward that always sums in the same order."""

from typing import Any

from torch import Tensor

from weft.kernels import reference
from weft.kernels.registration import define


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows] for int32 or int64 rows [M]; the gradient of a row that is taken twice is the sum of both."""
    out: Tensor = gather_op(x, rows)
    return out


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.num_rows = inputs[0].shape[0]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (rows,) = ctx.saved_tensors
    return gather_backward_op(grad, rows, ctx.num_rows), None


def _scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _scatter_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (rows,) = ctx.saved_tensors
    return gather_op(grad, rows), None, None


gather_backward_op: Any = define(
    "gather_backward(Tensor grad, Tensor rows, SymInt num_rows) -> Tensor",
    reference=reference.gather_backward,
    fake=lambda grad, rows, num_rows: grad.new_empty((num_rows, *grad.shape[1:])),
    setup=_scatter_setup,
    backward=_scatter_backward,
)

gather_op: Any = define(
    "gather(Tensor x, Tensor rows) -> Tensor",
    reference=reference.gather,
    fake=lambda x, rows: x.new_empty((rows.shape[0], *x.shape[1:])),
    setup=_setup,
    backward=_backward,
)
