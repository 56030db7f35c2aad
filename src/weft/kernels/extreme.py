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
    indptr: Tensor, indices: Tensor, x: Tensor, maximum: bool, *_: Tensor | None
) -> tuple[Tensor, Tensor]:
    codes = native.codes(x, indices)
    if codes is None:
        return reference.extreme(indptr, indices, x, maximum)
    value = native.empty((indptr.shape[0] - 1, *x.shape[1:]), x.dtype)
    count = native.empty(value.shape, torch.int32)
    sizes = (value.shape[0], x.shape[0], indices.shape[0], math.prod(x.shape[1:]))
    native.call("weft_extreme", indptr, indices, x, value, count, *sizes, maximum, *codes, native.threads())
    return value, count


def _backward_cpu(
    t_indptr: Tensor, t_indices: Tensor, x: Tensor, value: Tensor, count: Tensor, grad: Tensor
) -> Tensor:
    given = (t_indptr, t_indices, x, value, count, grad)
    codes = native.codes(x, t_indices)
    if codes is None:
        return reference.extreme_backward(*given)
    out = native.empty(x.shape, x.dtype)
    sizes = (x.shape[0], value.shape[0], t_indices.shape[0], math.prod(x.shape[1:]))
    native.call(
        "weft_extreme_backward", *given, out, *sizes, *codes, native.threads(), what="extreme backward"
    )
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
