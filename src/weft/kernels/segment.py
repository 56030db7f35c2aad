"""One matrix a segment of rows: the typed layers' linear maps.

A product is torch's own (MKL on CPU): the loop costs a few microseconds a segment, far below the products.
"""

from typing import Any

from torch import Tensor

from weft.errors import InputError
from weft.kernels import reference
from weft.kernels.registration import define, eager


def segment_matmul(x: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Return x[offsets[s] : offsets[s + 1]] @ weights[s] for all segments s, stacked: [M, N].

    x is [M, K], offsets int64 [S + 1] on the CPU from 0 to M, weights [S, K, N].
    """
    if weights.dim() != 3 or x.dim() != 2 or offsets.shape[0] != weights.shape[0] + 1:
        raise InputError(
            f"expected x [M, K], offsets [S + 1], weights [S, K, N]; "
            f"got {list(x.shape)}, {list(offsets.shape)}, {list(weights.shape)}"
        )
    # Under autocast rows come in bfloat16 while parameters stay in float32, as for torch's own products.
    out: Tensor = eager(segment_matmul_op, x, offsets, weights.to(x.dtype))
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
