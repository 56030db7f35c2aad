"""Softmax over the incoming edges of each row."""

import math
from typing import Any

from torch import Tensor

from weft.kernels import native, reference
from weft.kernels.registration import accumulator, as_indptr, define, eager


def edge_softmax(indptr: Tensor, scores: Tensor) -> Tensor:
    """Return the softmax of scores ([E] or [E, H]) over the edges of each row, head by head."""
    out: Tensor = eager(edge_softmax_op, as_indptr(indptr), scores.to(accumulator(scores.dtype)))
    return out.to(scores.dtype)


def _softmax_cpu(indptr: Tensor, scores: Tensor) -> Tensor:
    core, code = native.library(), native.DTYPE_CODES.get(scores.dtype, 9)
    if core is None or code > 1:
        return reference.edge_softmax(indptr, scores)
    indptr, scores = indptr.contiguous(), scores.contiguous()
    out = native.empty(scores.shape, scores.dtype)
    native.check(
        core.weft_edge_softmax(
            native.address(indptr),
            native.address(scores),
            native.address(out),
            indptr.shape[0] - 1,
            scores.shape[0],
            math.prod(scores.shape[1:]),
            code,
            native.threads(),
        ),
        "edge_softmax",
    )
    return out


def _backward_cpu(indptr: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    core, code = native.library(), native.DTYPE_CODES.get(out.dtype, 9)
    if core is None or code > 1:
        return reference.edge_softmax_backward(indptr, out, grad)
    indptr, out, grad = indptr.contiguous(), out.contiguous(), grad.contiguous()
    grad_scores = native.empty(out.shape, out.dtype)
    native.check(
        core.weft_edge_softmax_backward(
            native.address(indptr),
            native.address(out),
            native.address(grad),
            native.address(grad_scores),
            indptr.shape[0] - 1,
            out.shape[0],
            math.prod(out.shape[1:]),
            code,
            native.threads(),
        ),
        "edge_softmax backward",
    )
    return grad_scores


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, out = ctx.saved_tensors
    return None, eager(edge_softmax_backward_op, indptr, out, grad)


edge_softmax_backward_op: Any = define(
    "edge_softmax_backward(Tensor indptr, Tensor out, Tensor grad) -> Tensor",
    reference=reference.edge_softmax_backward,
    cpu=_backward_cpu,
    gpu="softmax.edge_softmax_backward",
    fake=lambda indptr, out, grad: out.new_empty(out.shape),
    plain_backward=True,
)

edge_softmax_op: Any = define(
    "edge_softmax(Tensor indptr, Tensor scores) -> Tensor",
    reference=reference.edge_softmax,
    cpu=_softmax_cpu,
    gpu="softmax.edge_softmax",
    fake=lambda indptr, scores: scores.new_empty(scores.shape),
    setup=_setup,
    backward=_backward,
)
