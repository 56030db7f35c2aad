"""Sparse × dense: sums, means and extremes over the incoming edges of each row.

The sum's backward is the same operator on the transposed CSR, the weights read through `edges`, so nothing is
permuted and derivatives of any order come from one formula. The gradient of the weights is an `sddmm` dot.
"""

from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.kernels import reference
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.registration import accumulator, as_indptr, define
from weft.kernels.sddmm import sddmm_dot_op

_NO_TRANSPOSED = (None, None, None)


def spmm(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: str = "sum",
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    transposed: Transposed | None = None,
) -> Tensor:
    """Return, for every row v, the reduction of the rows of x that its edges point at: [num_dst, ...].

    sum: out[v] = dst_scale[v] · Σ weight[e] · src_scale[u] · x[u]; mean divides that by the number of edges of v;
    max and min take neither weight nor scale, and share the gradient equally among tied edges. Empty rows give 0.
    x is [N, F] or [N, H, D]; weight [E], or [E, H] for a 3-D x; the scales are constants.
    """
    indptr = as_indptr(indptr)
    if reduce in ("max", "min"):
        if weight is not None or src_scale is not None or dst_scale is not None:
            raise InputError(
                f"reduce={reduce!r} takes no weight and no scale; use block.propagate for weighted edges"
            )
        t_indptr, t_indices, _ = transposed or _NO_TRANSPOSED
        value: Tensor = extreme_op(indptr, indices, x, reduce == "max", t_indptr, t_indices)[0]
        return value
    if reduce not in ("sum", "mean"):
        raise InputError(f"reduce must be sum, mean, max or min, got {reduce!r}")
    kind = accumulator(x.dtype)
    if weight is not None:
        _check_weight(weight, indices, x)
        weight = weight.to(kind)
    src_scale = None if src_scale is None else src_scale.to(kind)
    dst_scale = None if dst_scale is None else dst_scale.to(kind)
    out: Tensor = spmm_op(
        indptr,
        indices,
        None,
        x,
        weight,
        src_scale,
        dst_scale,
        reduce == "mean",
        *(transposed or _NO_TRANSPOSED),
    )
    return out


def extreme(
    indptr: Tensor, indices: Tensor, x: Tensor, reduce: str = "max", *, transposed: Transposed | None = None
) -> tuple[Tensor, Tensor]:
    """Return the largest (or smallest) value over each row's edges and, as int32, how many edges attain it.

    Partial results of one row merge by comparing values and adding the counts of equal ones.
    """
    if reduce not in ("max", "min"):
        raise InputError(f"reduce must be max or min, got {reduce!r}")
    t_indptr, t_indices, _ = transposed or _NO_TRANSPOSED
    value, count = extreme_op(as_indptr(indptr), indices, x, reduce == "max", t_indptr, t_indices)
    return value, count


def _check_weight(weight: Tensor, indices: Tensor, x: Tensor) -> None:
    heads = weight.dim() == 2 and x.dim() == 3 and weight.shape[1] == x.shape[1]
    if weight.shape[0] != indices.shape[0] or not (weight.dim() == 1 or heads):
        raise GraphError(
            f"expected weight [{indices.shape[0]}] (or [{indices.shape[0]}, heads] for x [N, heads, D]), "
            f"got {list(weight.shape)} with x {list(x.shape)}"
        )


def _spmm_fake(indptr: Tensor, indices: Tensor, edges: Tensor | None, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))


def _spmm_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indptr, indices, edges, x, weight, src_scale, dst_scale, mean, *transposed = inputs
    # x is kept only for the gradient of the weights
    kept = x if weight is not None and weight.requires_grad else None
    ctx.save_for_backward(indptr, indices, edges, kept, weight, src_scale, dst_scale, *transposed)
    ctx.mean, ctx.num_src = mean, x.shape[0]


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, indices, edges, x, weight, src_scale, dst_scale, *transposed = ctx.saved_tensors
    if ctx.mean:
        dst_scale = reference.inverse_degree(indptr, accumulator(grad.dtype), dst_scale)
    grad_x = grad_weight = None
    if ctx.needs_input_grad[3]:
        t_indptr, t_indices, t_edges = transposed_or_built(transposed, indptr, indices, ctx.num_src)
        backward = (t_indptr, t_indices, t_edges if weight is not None else None)
        forward = (indptr, indices, edges)
        grad_x = spmm_op(*backward, grad, weight, dst_scale, src_scale, False, *forward)
    if weight is not None and ctx.needs_input_grad[4]:
        if weight.dim() == 1 and x.dim() > 2:
            x, grad = x.flatten(1), grad.flatten(1)
        grad_weight = sddmm_dot_op(indptr, indices, edges, x, grad, src_scale, dst_scale, *transposed)
    return None, None, None, grad_x, grad_weight, None, None, None, None, None, None


spmm_op: Any = define(
    "spmm(Tensor indptr, Tensor indices, Tensor? edges, Tensor x, Tensor? weight, Tensor? src_scale, "
    "Tensor? dst_scale, bool mean, Tensor? t_indptr, Tensor? t_indices, Tensor? t_edges) -> Tensor",
    reference=reference.spmm,
    fake=_spmm_fake,
    setup=_spmm_setup,
    backward=_spmm_backward,
)


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
    grad_x = extreme_backward_op(t_indptr, t_indices, x, value, count, grad)
    return None, None, grad_x, None, None, None


extreme_backward_op: Any = define(
    "extreme_backward(Tensor t_indptr, Tensor t_indices, Tensor x, Tensor value, Tensor count, Tensor grad) -> Tensor",
    reference=reference.extreme_backward,
    fake=lambda t_indptr, t_indices, x, value, count, grad: x.new_empty(x.shape),
)

extreme_op: Any = define(
    "extreme(Tensor indptr, Tensor indices, Tensor x, bool maximum, Tensor? t_indptr, Tensor? t_indices) "
    "-> (Tensor, Tensor)",
    reference=reference.extreme,
    fake=_extreme_fake,
    setup=_extreme_setup,
    backward=_extreme_backward,
)
