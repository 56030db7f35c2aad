"""Softmax over the incoming edges of each row."""

import math
from typing import Any

import torch
from torch import Tensor

from weft.kernels import native, reference
from weft.kernels.registration import accumulator, as_indptr, define, eager


def edge_softmax(indptr: Tensor, scores: Tensor) -> Tensor:
    """Return the softmax of scores ([E] or [E, H]) over the edges of each row, head by head."""
    out: Tensor = eager(edge_softmax_op, as_indptr(indptr), scores.to(accumulator(scores.dtype)))
    return out.to(scores.dtype)


def _softmax_cpu(indptr: Tensor, scores: Tensor) -> Tensor:
    if not _native(scores):
        return reference.edge_softmax(indptr, scores)
    out = native.empty(scores.shape, scores.dtype)
    native.call("weft_edge_softmax", indptr, scores, out, *_sizes(indptr, scores))
    return out


def _backward_cpu(indptr: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    if not _native(out):
        return reference.edge_softmax_backward(indptr, out, grad)
    found = native.empty(out.shape, out.dtype)
    sizes = _sizes(indptr, out)
    native.call("weft_edge_softmax_backward", indptr, out, grad, found, *sizes, what="edge_softmax backward")
    return found


def _native(scores: Tensor) -> bool:
    return native.available() and scores.dtype in (torch.float32, torch.float64)


def _sizes(indptr: Tensor, scores: Tensor) -> tuple[int, ...]:
    """Return what the core reads behind the tensors: rows, edges, columns, type and threads."""
    sizes = indptr.shape[0] - 1, scores.shape[0], math.prod(scores.shape[1:])
    return *sizes, native.DTYPE_CODES[scores.dtype], native.threads()


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
