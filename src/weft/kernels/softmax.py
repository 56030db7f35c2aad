"""Softmax over the incoming edges of each row."""

from typing import Any

from torch import Tensor

from weft.kernels import reference
from weft.kernels.registration import accumulator, as_indptr, define


def edge_softmax(indptr: Tensor, scores: Tensor) -> Tensor:
    """Return the softmax of scores ([E] or [E, H]) over the edges of each row, head by head."""
    out: Tensor = edge_softmax_op(as_indptr(indptr), scores.to(accumulator(scores.dtype)))
    return out.to(scores.dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, out = ctx.saved_tensors
    return None, edge_softmax_backward_op(indptr, out, grad)


edge_softmax_backward_op: Any = define(
    "edge_softmax_backward(Tensor indptr, Tensor out, Tensor grad) -> Tensor",
    reference=reference.edge_softmax_backward,
    fake=lambda indptr, out, grad: out.new_empty(out.shape),
)

edge_softmax_op: Any = define(
    "edge_softmax(Tensor indptr, Tensor scores) -> Tensor",
    reference=reference.edge_softmax,
    fake=lambda indptr, scores: scores.new_empty(scores.shape),
    setup=_setup,
    backward=_backward,
)
