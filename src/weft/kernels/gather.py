"""Rows of a matrix by index, with a backward that always sums in the same order."""

import math
from typing import Any

import torch
from torch import Tensor

from weft.kernels import native, reference
from weft.kernels.csr import group
from weft.kernels.registration import define, eager


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """Return x[rows] for int32 or int64 rows [M]; a row taken twice gets the sum of both gradients."""
    out: Tensor = eager(gather_op, x, rows)
    return out


def _gather_cpu(x: Tensor, rows: Tensor) -> Tensor:
    index = native.INDEX_CODES.get(rows.dtype)
    if not native.available() or index is None or not x.is_contiguous():
        return reference.gather(x, rows)
    out = native.empty((rows.shape[0], *x.shape[1:]), x.dtype)
    row_bytes = math.prod(x.shape[1:]) * x.element_size()
    sizes = (x, x.shape[0], rows, rows.shape[0], row_bytes)
    native.call("weft_gather", *sizes, out, index, native.threads())
    return out


def _gather_backward_cpu(grad: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    if not native.available() or grad.dtype not in native.DTYPE_CODES:
        return reference.gather_backward(grad, rows, num_rows)
    indptr, _, positions = group(rows, num_rows)
    plain = (None, None, None, False, False, None, None, None)
    out: Tensor = eager(torch.ops.weft.spmm.default, indptr, positions, None, grad, *plain)
    return out


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.num_rows = inputs[0].shape[0]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (rows,) = ctx.saved_tensors
    return eager(gather_backward_op, grad, rows, ctx.num_rows), None


def _scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _scatter_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (rows,) = ctx.saved_tensors
    return eager(gather_op, grad, rows), None, None


gather_backward_op: Any = define(
    "gather_backward(Tensor grad, Tensor rows, SymInt num_rows) -> Tensor",
    reference=reference.gather_backward,
    cpu=_gather_backward_cpu,
    gpu="gather.gather_backward",
    fake=lambda grad, rows, num_rows: grad.new_empty((num_rows, *grad.shape[1:])),
    setup=_scatter_setup,
    backward=_scatter_backward,
)

gather_op: Any = define(
    "gather(Tensor x, Tensor rows) -> Tensor",
    reference=reference.gather,
    cpu=_gather_cpu,
    gpu="gather.gather",
    fake=lambda x, rows: x.new_empty((rows.shape[0], *x.shape[1:])),
    setup=_setup,
    backward=_backward,
)
