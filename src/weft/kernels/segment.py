"""One matrix per segment of rows: the typed layers' linear maps.

A product is torch's own (MKL on CPU): the loop costs a few microseconds a segment, far below the products.
Rows that are taken from a matrix of their own are gathered a segment at a time where segments are long.
"""

from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError
from weft.kernels import reference
from weft.kernels.gather import gather, gather_backward_op
from weft.kernels.registration import define, eager

LONG = 4096
"""Rows of a segment on average from which on each is gathered alone."""


def segment_matmul(x: Tensor, offsets: Tensor, weights: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return x[offsets[s] : offsets[s + 1]] @ weights[s] for all segments s, stacked: [M, N].

    x is [M, K], offsets int64 [S + 1] on the CPU from 0 to M, weights [S, K, N]. With `rows` [M] it is
    x[rows] that is multiplied, which is not formed; no row may come twice in a segment.
    """
    if rows is not None and rows.shape[0] <= LONG * weights.shape[0]:
        return segment_matmul(gather(x, rows), offsets, weights)
    if weights.dim() != 3 or x.dim() != 2 or offsets.shape[0] != weights.shape[0] + 1:
        raise InputError(
            f"expected x [M, K], offsets [S + 1], weights [S, K, N]; "
            f"got {list(x.shape)}, {list(offsets.shape)}, {list(weights.shape)}"
        )
    # Under autocast rows come in bfloat16 while parameters stay in float32, as for torch's own products.
    weights = weights.to(x.dtype)
    given = (segment_matmul_op, x) if rows is None else (segment_matmul_of_op, x, rows)
    out: Tensor = eager(*given, offsets, weights)
    return out


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, offsets, weights = ctx.saved_tensors
    grad_x = grad_weights = None
    if ctx.needs_input_grad[0]:
        grad_x = eager(segment_matmul_op, grad, offsets, weights.transpose(1, 2))
    if ctx.needs_input_grad[2]:
        grad_weights = eager(segment_outer_op, x, grad, offsets)
    return grad_x, None, grad_weights


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, other, offsets = ctx.saved_tensors
    grad_x = grad_other = None
    if ctx.needs_input_grad[0]:
        grad_x = eager(segment_matmul_op, other, offsets, grad.transpose(1, 2))
    if ctx.needs_input_grad[1]:
        grad_other = eager(segment_matmul_op, x, offsets, grad)
    return grad_x, grad_other, None


def _matmul_of_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, rows, offsets, weights = ctx.saved_tensors
    grad_x = grad_weights = None
    again = torch.is_grad_enabled()  # a gradient of this one is wanted: by operators that have it
    if ctx.needs_input_grad[0] and again:
        each = eager(segment_matmul_op, grad, offsets, weights.transpose(1, 2))
        grad_x = eager(gather_backward_op, each, rows, x.shape[0])
    elif ctx.needs_input_grad[0]:
        grad_x = eager(segment_matmul_of_rows_op, grad, rows, offsets, weights, x.shape[0])
    if ctx.needs_input_grad[3]:
        given = (segment_outer_op, gather(x, rows)) if again else (segment_outer_of_op, x, rows)
        grad_weights = eager(*given, grad, offsets)
    return grad_x, None, None, grad_weights


segment_matmul_op: Any = define(
    "segment_matmul(Tensor x, Tensor offsets, Tensor weights) -> Tensor",
    reference=reference.segment_matmul,
    gpu="segment.segment_matmul",
    fake=lambda x, offsets, weights: x.new_empty((x.shape[0], weights.shape[2])),
    setup=_setup,
    backward=_matmul_backward,
)

segment_outer_op: Any = define(
    "segment_outer(Tensor x, Tensor grad, Tensor offsets) -> Tensor",
    reference=reference.segment_outer,
    gpu="segment.segment_outer",
    fake=lambda x, grad, offsets: x.new_empty((offsets.shape[0] - 1, x.shape[1], grad.shape[1])),
    setup=_setup,
    backward=_outer_backward,
)

segment_matmul_of_op: Any = define(
    "segment_matmul_of(Tensor x, Tensor rows, Tensor offsets, Tensor weights) -> Tensor",
    reference=reference.segment_matmul_of,
    gpu="segment_rows.segment_matmul_of",
    fake=lambda x, rows, offsets, weights: x.new_empty((rows.shape[0], weights.shape[2])),
    setup=_setup,
    backward=_matmul_of_backward,
)

segment_matmul_of_rows_op: Any = define(
    "segment_matmul_of_rows(Tensor grad, Tensor rows, Tensor offsets, Tensor weights, SymInt num_rows)"
    " -> Tensor",
    reference=reference.segment_matmul_of_rows,
    gpu="segment_rows.segment_matmul_of_rows",
    fake=lambda grad, rows, offsets, weights, num_rows: grad.new_empty((num_rows, weights.shape[1])),
)

segment_outer_of_op: Any = define(
    "segment_outer_of(Tensor x, Tensor rows, Tensor grad, Tensor offsets) -> Tensor",
    reference=reference.segment_outer_of,
    gpu="segment_rows.segment_outer_of",
    fake=lambda x, rows, grad, offsets: x.new_empty((offsets.shape[0] - 1, x.shape[1], grad.shape[1])),
)
