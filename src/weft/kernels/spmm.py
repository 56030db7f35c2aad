"""Sparse × dense: sums and means over the incoming edges of each row; `extreme` has the largest and smallest.

The sum's backward is the same operator on the transposed CSR, the weights read through `edges`, so nothing is
permuted and derivatives of any order come from one formula. The gradient of the weights is an `sddmm` dot.
"""

import math
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.kernels import native, reference
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.extreme import extreme
from weft.kernels.registration import accumulator, as_indices, as_indptr, define, eager
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

    sum: out[v] = dst_scale[v] · Σ weight[e] · src_scale[u] · x[u]; mean divides that by the number of edges
    of v; max and min take neither weight nor scale, and share the gradient equally among tied edges. Empty
    rows give 0. x is [N, F] or [N, H, D]; weight [E], or [E, H] for a 3-D x; the scales are constants.
    """
    if reduce in ("max", "min"):
        if weight is not None or src_scale is not None or dst_scale is not None:
            raise InputError(f"reduce={reduce!r} takes no weight and no scale; use block.propagate instead")
        return extreme(indptr, indices, x, reduce, transposed=transposed)[0]
    if reduce not in ("sum", "mean"):
        raise InputError(f"reduce must be sum, mean, max or min, got {reduce!r}")
    kind = accumulator(x.dtype)
    if weight is not None:
        _check_weight(weight, indices, x)
        weight = weight.to(kind)
    scales = (
        _scale(src_scale, x.shape[0], kind, "src_scale"),
        _scale(dst_scale, indptr.shape[0] - 1, kind, "dst_scale"),
    )
    flat = x.unsqueeze(1) if x.dim() == 1 else x
    held, mean = transposed or _NO_TRANSPOSED, reduce == "mean"
    out: Tensor = eager(
        spmm_op, as_indptr(indptr), as_indices(indices), None, flat, weight, *scales, mean, False, *held
    )
    return out.squeeze(1) if x.dim() == 1 else out


def _scale(scale: Tensor | None, rows: int, kind: torch.dtype, name: str) -> Tensor | None:
    if scale is None:
        return None
    if scale.shape != (rows,):
        raise GraphError(f"expected {name} of shape [{rows}], got {list(scale.shape)}")
    return scale.detach().to(kind)


def _check_weight(weight: Tensor, indices: Tensor, x: Tensor) -> None:
    heads = weight.dim() == 2 and x.dim() == 3 and weight.shape[1] == x.shape[1]
    if weight.shape[0] != indices.shape[0] or not (weight.dim() == 1 or heads):
        raise GraphError(
            f"expected weight [{indices.shape[0]}] (or [{indices.shape[0]}, heads] for x [N, heads, D]), "
            f"got {list(weight.shape)} with x {list(x.shape)}"
        )


def _spmm_cpu(*arguments: Any) -> Tensor:
    indptr, indices, edges, x, weight, src_scale, dst_scale, mean, src_mean, t_indptr, *_ = arguments
    codes = native.codes(x, indices)
    if codes is None:
        return reference.spmm(*arguments)
    num_rows, num_src, num_edges = indptr.shape[0] - 1, x.shape[0], indices.shape[0]
    out = native.empty((num_rows, *x.shape[1:]), x.dtype)
    edges = edges if edges is None else edges.to(indices.dtype)
    heads = weight.shape[1] if weight is not None and weight.dim() == 2 else 1
    given = (indptr, indices, edges, x, weight, src_scale, dst_scale, t_indptr if src_mean else None)
    sizes = (num_rows, num_src, num_edges, math.prod(x.shape[1:]), heads)
    native.call("weft_spmm", *given, out, *sizes, mean, *codes, native.threads())
    return out


def _spmm_fake(indptr: Tensor, indices: Tensor, edges: Tensor | None, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))


def _spmm_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indptr, indices, edges, x, weight, src_scale, dst_scale, mean, src_mean, *transposed = inputs
    # x is kept only for the gradient of the weights
    kept = x if weight is not None and ctx.needs_input_grad[4] else None
    ctx.save_for_backward(indptr, indices, edges, kept, weight, src_scale, dst_scale, *transposed)
    ctx.means, ctx.num_src = (mean, src_mean), x.shape[0]


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, indices, edges, x, weight, src_scale, dst_scale, *transposed = ctx.saved_tensors
    mean, src_mean = ctx.means
    forward = (indptr, indices, edges)
    grad_x = grad_weight = None
    if ctx.needs_input_grad[3]:
        t_indptr, t_indices, t_edges = transposed_or_built(transposed, indptr, indices, ctx.num_src)
        backward = (t_indptr, t_indices, t_edges if weight is not None else None)
        grad_x = eager(spmm_op, *backward, grad, weight, dst_scale, src_scale, src_mean, mean, *forward)
    if ctx.needs_input_grad[4]:
        if weight.dim() == 1 and x.dim() > 2:
            x, grad = x.flatten(1), grad.flatten(1)
        grad_weight = eager(
            sddmm_dot_op, *forward, x, grad, src_scale, dst_scale, mean, src_mean, *transposed
        )
    return None, None, None, grad_x, grad_weight, None, None, None, None, None, None, None


spmm_op: Any = define(
    "spmm(Tensor indptr, Tensor indices, Tensor? edges, Tensor x, Tensor? weight, Tensor? src_scale, "
    "Tensor? dst_scale, bool mean, bool src_mean, Tensor? t_indptr, Tensor? t_indices, Tensor? t_edges) "
    "-> Tensor",
    reference=reference.spmm,
    cpu=_spmm_cpu,
    gpu="spmm.spmm",
    fake=_spmm_fake,
    setup=_spmm_setup,
    backward=_spmm_backward,
)
