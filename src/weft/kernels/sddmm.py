"""Sampled dense × dense: one value for every edge from the rows at its two ends."""

import math
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError
from weft.kernels import native, reference
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.registration import accumulator, as_indices, as_indptr, define, eager

_NO_TRANSPOSED = (None, None, None)


def sddmm(
    indptr: Tensor,
    indices: Tensor,
    a_src: Tensor,
    b_dst: Tensor,
    op: str = "dot",
    *,
    transposed: Transposed | None = None,
) -> Tensor:
    """Return one value for every edge (u, v), from a_src[u] and b_dst[v].

    dot: ⟨a[u], b[v]⟩, [E] for 2-D inputs and [E, H] for [N, H, D]; add, sub, mul: a[u] op b[v], [E, ...].
    """
    if op not in ("dot", "add", "sub", "mul"):
        raise InputError(f"op must be dot, add, sub or mul, got {op!r}")
    if a_src.shape[1:] != b_dst.shape[1:] or a_src.dtype != b_dst.dtype:
        raise InputError(
            f"expected a_src and b_dst of one width and type, got {list(a_src.shape)} {a_src.dtype} "
            f"and {list(b_dst.shape)} {b_dst.dtype}"
        )
    if op == "dot" and a_src.dim() not in (2, 3):
        raise InputError(f"dot takes [N, F] or [N, heads, D], got {list(a_src.shape)}")
    if b_dst.shape[0] != indptr.shape[0] - 1:
        raise InputError(f"expected b_dst of {indptr.shape[0] - 1} rows, got {b_dst.shape[0]}")
    indptr, indices = as_indptr(indptr), as_indices(indices)
    held = transposed or _NO_TRANSPOSED
    if op == "dot":
        dots: Tensor = eager(
            sddmm_dot_op, indptr, indices, None, a_src, b_dst, None, None, False, False, *held
        )
        return dots.to(a_src.dtype)
    out: Tensor = eager(sddmm_op, indptr, indices, a_src, b_dst, op, *held)
    return out


def _dot_cpu(*arguments: Any) -> Tensor:
    indptr, indices, edges, a, b, src_scale, dst_scale, mean, src_mean, t_indptr, *_ = arguments
    codes = native.codes(a, indices)
    if codes is None:
        return reference.sddmm_dot(*arguments)
    # Dots of halves are kept in float32: they are gradients of weights, which are float32 in any case.
    out = native.empty((indices.shape[0], *a.shape[1:-1]), accumulator(a.dtype))
    edges = edges if edges is None else edges.to(indices.dtype)
    given = (indptr, indices, edges, a, b, src_scale, dst_scale, t_indptr if src_mean else None)
    heads, dim = (a.shape[1] if a.dim() == 3 else 1), a.shape[-1]
    sizes = (b.shape[0], a.shape[0], indices.shape[0], heads, dim)
    native.call("weft_sddmm_dot", *given, out, *sizes, mean, *codes, native.threads(), what="sddmm")
    return out


def _dot_fake(indptr: Tensor, indices: Tensor, edges: Tensor | None, a: Tensor, *rest: Any) -> Tensor:
    return a.new_empty((indices.shape[0], *a.shape[1:-1]), dtype=accumulator(a.dtype))


def _dot_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    # 7 and 8 are the two flags of means, which are no tensors.
    ctx.save_for_backward(*inputs[:7], *inputs[9:])
    ctx.means = inputs[7:9]


def _dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, indices, edges, a, b, src_scale, dst_scale, *transposed = ctx.saved_tensors
    spmm_op = torch.ops.weft.spmm.default
    mean, src_mean = ctx.means
    grad_a = grad_b = None
    if ctx.needs_input_grad[3]:
        backward = transposed_or_built(transposed, indptr, indices, a.shape[0])
        grad_a = eager(
            spmm_op, *backward, b, grad, dst_scale, src_scale, src_mean, mean, indptr, indices, edges
        )
    if ctx.needs_input_grad[4]:
        grad_b = eager(
            spmm_op, indptr, indices, edges, a, grad, src_scale, dst_scale, mean, src_mean, *transposed
        )
    return None, None, None, grad_a, grad_b, None, None, None, None, None, None, None


sddmm_dot_op: Any = define(
    "sddmm_dot(Tensor indptr, Tensor indices, Tensor? edges, Tensor a, Tensor b, Tensor? src_scale, "
    "Tensor? dst_scale, bool mean, bool src_mean, Tensor? t_indptr, Tensor? t_indices, Tensor? t_edges) "
    "-> Tensor",
    reference=reference.sddmm_dot,
    cpu=_dot_cpu,
    gpu="sddmm.sddmm_dot",
    fake=_dot_fake,
    setup=_dot_setup,
    backward=_dot_backward,
)


_OPS = {"add": 0, "sub": 1, "mul": 2}


def _sddmm_cpu(indptr: Tensor, indices: Tensor, a: Tensor, b: Tensor, op: str, *_: Tensor | None) -> Tensor:
    codes = native.codes(a, indices)
    if codes is None:
        return reference.sddmm(indptr, indices, a, b, op)
    out = native.empty((indices.shape[0], *a.shape[1:]), a.dtype)
    sizes = (b.shape[0], a.shape[0], indices.shape[0], math.prod(a.shape[1:]))
    native.call("weft_sddmm", indptr, indices, a, b, out, _OPS[op], *sizes, *codes, native.threads())
    return out


def _sddmm_fake(indptr: Tensor, indices: Tensor, a: Tensor, *rest: Any) -> Tensor:
    return a.new_empty((indices.shape[0], *a.shape[1:]))


def _sddmm_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indptr, indices, a, b, op, *transposed = inputs
    ends = (a, b) if op == "mul" else (None, None)
    ctx.save_for_backward(indptr, indices, *ends, *transposed)
    ctx.op, ctx.num_src = op, a.shape[0]


def _sddmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    indptr, indices, a, b, *transposed = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[2]:
        t_indptr, _, t_edges = transposed_or_built(transposed, indptr, indices, ctx.num_src)
        messages = (
            grad
            if ctx.op != "mul"
            else sddmm_op(indptr, _positions(indices), grad, b, "mul", None, None, None)
        )
        grad_a = _sum_edges(t_indptr, t_edges, messages)
    if ctx.needs_input_grad[3]:
        if ctx.op == "mul":
            grad = grad * eager(torch.ops.weft.gather.default, a, indices)
        grad_b = _sum_edges(indptr, _positions(indices), grad)
        grad_b = -grad_b if ctx.op == "sub" else grad_b
    return None, None, grad_a, grad_b, None, None, None, None


def _positions(indices: Tensor) -> Tensor:
    return torch.arange(indices.shape[0], dtype=indices.dtype, device=indices.device)


def _sum_edges(indptr: Tensor, edges: Tensor | None, values: Tensor) -> Tensor:
    """Return the sum of values [E, ...] over each row's edges; `edges` is the place of each edge's value."""
    plain = (None, None, None, False, False)
    out: Tensor = eager(torch.ops.weft.spmm.default, indptr, edges, None, values, *plain, *_NO_TRANSPOSED)
    return out


sddmm_op: Any = define(
    "sddmm(Tensor indptr, Tensor indices, Tensor a, Tensor b, str op, Tensor? t_indptr, Tensor? t_indices, "
    "Tensor? t_edges) -> Tensor",
    reference=reference.sddmm,
    cpu=_sddmm_cpu,
    gpu="sddmm.sddmm",
    fake=_sddmm_fake,
    setup=_sddmm_setup,
    backward=_sddmm_backward,
)
