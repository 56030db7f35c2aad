"""The largest or smallest value over the incoming edges of each row, and how many edges attain it."""

import math
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError
from weft.kernels import native, reference
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.registration import as_indices, as_indptr, define, eager


def extreme(
    indptr: Tensor, indices: Tensor, x: Tensor, reduce: str = "max", *, transposed: Transposed | None = None
) -> tuple[Tensor, Tensor]:
    """Return the largest (or smallest) value over each row's edges and, as int32, how many edges attain it.

    Empty rows give 0 and 0. Partial results of one row merge by comparing values and adding the counts of
    equal ones. The gradient of a value is shared equally among the edges that attain it.
    """
    if reduce not in ("max", "min"):
        raise InputError(f"reduce must be max or min, got {reduce!r}")
    t_indptr, t_indices, _ = transposed or (None, None, None)
    value, count = eager(
        extreme_op, as_indptr(indptr), as_indices(indices), x, reduce == "max", t_indptr, t_indices
    )
    return value, count


def _extreme_cpu(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    maximum: bool,
    t_indptr: Tensor | None,
    t_indices: Tensor | None,
) -> tuple[Tensor, Tensor]:
    core = native.library()
    code, index = native.DTYPE_CODES.get(x.dtype), native.INDEX_CODES.get(indices.dtype)
    if core is None or code is None or index is None:
        return reference.extreme(indptr, indices, x, maximum)
    num_rows = indptr.shape[0] - 1
    value = native.empty((num_rows, *x.shape[1:]), x.dtype)
    count = native.empty(value.shape, torch.int32)
    indptr, indices, x = indptr.contiguous(), indices.contiguous(), x.contiguous()
    status = core.weft_extreme(
        native.address(indptr),
        native.address(indices),
        native.address(x),
        native.address(value),
        native.address(count),
        num_rows,
        x.shape[0],
        indices.shape[0],
        math.prod(x.shape[1:]),
        maximum,
        code,
        index,
        native.threads(),
    )
    native.check(status, "extreme")
    return value, count


def _backward_cpu(
    t_indptr: Tensor, t_indices: Tensor, x: Tensor, value: Tensor, count: Tensor, grad: Tensor
) -> Tensor:
    core = native.library()
    code, index = native.DTYPE_CODES.get(x.dtype), native.INDEX_CODES.get(t_indices.dtype)
    if core is None or code is None or index is None:
        return reference.extreme_backward(t_indptr, t_indices, x, value, count, grad)
    out = native.empty(x.shape, x.dtype)
    dense = [tensor.contiguous() for tensor in (t_indptr, t_indices, x, value, count, grad)]
    status = core.weft_extreme_backward(
        *[native.address(tensor) for tensor in dense],
        native.address(out),
        x.shape[0],
        value.shape[0],
        t_indices.shape[0],
        math.prod(x.shape[1:]),
        code,
        index,
        native.threads(),
    )
    native.check(status, "extreme backward")
    return out


def _extreme_fake(indptr: Tensor, indices: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    value = x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))
    return value, torch.empty_like(value, dtype=torch.int32)


def _extreme_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    indptr, indices, x, _, t_indptr, t_indices = inputs
    value, count = output
    ctx.mark_non_differentiable(count)
    ctx.save_for_backward(indptr, indices, x, value, count, t_indptr, t_indices)


def _extreme_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    indptr, indices, x, value, count, t_indptr, t_indices = ctx.saved_tensors
    t_indptr, t_indices, _ = transposed_or_built((t_indptr, t_indices, None), indptr, indices, x.shape[0])
    grad_x = eager(extreme_backward_op, t_indptr, t_indices, x, value, count, grad)
    return None, None, grad_x, None, None, None


extreme_backward_op: Any = define(
    "extreme_backward(Tensor t_indptr, Tensor t_indices, Tensor x, Tensor value, Tensor count, Tensor grad) "
    "-> Tensor",
    reference=reference.extreme_backward,
    cpu=_backward_cpu,
    gpu="extreme.extreme_backward",
    fake=lambda t_indptr, t_indices, x, value, count, grad: x.new_empty(x.shape),
    plain_backward=True,
)

extreme_op: Any = define(
    "extreme(Tensor indptr, Tensor indices, Tensor x, bool maximum, Tensor? t_indptr, Tensor? t_indices) "
    "-> (Tensor, Tensor)",
    reference=reference.extreme,
    cpu=_extreme_cpu,
    gpu="extreme.extreme",
    fake=_extreme_fake,
    setup=_extreme_setup,
    backward=_extreme_backward,
)
