"""Fused attention: scores, softmax over incoming edges, dropout and the weighted sum in one operator.

Three scores share the rest: additive (GAT), GATv2 and dot product. Rows of the CSR are destinations v,
`indices` are source rows u. With alpha the softmax over the edges of a row, for each head by itself,

    out[v, h] = sum over edges e = (u, v) of keep[e, h] / (1 - p) * alpha[e, h] * value[u, h]

where keep is a counter draw of (edge id, head). Forward saves the maximum and the sum of exponentials of each
row, from which backward computes alpha again: nothing of size edges x heads x dim is stored, nor the output,
which may be changed in place. Where additive scores will need a gradient, forward also keeps two
sums of each row (`reference_attention.keeping_forward`), which save backward one of its two passes over the
edges.
"""

from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.kernels import native_attention
from weft.kernels import reference_attention as reference
from weft.kernels.csr import Transposed, transposed_or_built
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2
from weft.kernels.registration import accumulator, as_clock, as_indices, as_indptr, define, eager
from weft.kernels.second import plain_gradients


def attention(
    indptr: Tensor,
    indices: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    value: Tensor,
    negative_slope: float = 0.2,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: Transposed | None = None,
) -> Tensor:
    """Return GAT's attention, [num_dst, H, D]; scores are leaky_relu(score_src[u] + score_dst[v] + edge[e]).

    score_src [num_src, H], score_dst [num_dst, H], value [num_src, H, D], edge [E, H] or None; a term of
    minus infinity masks its edge, and a row without edges gives 0. `dropout` zeroes attention weights by
    draws of (edge id, head): `edge_ids` defaults to the position of the edge, `clock` (seed, epoch, step) to
    a fresh one from torch's generator. `transposed` saves building the transposed CSR in backward.
    """
    given = (score_src, score_dst, None, value, edge)
    return _attend(
        ADDITIVE, indptr, indices, given, negative_slope, dropout, edge_ids, clock, layer, transposed
    )


def attention_gatv2(
    indptr: Tensor,
    indices: Tensor,
    src: Tensor,
    dst: Tensor,
    a: Tensor,
    value: Tensor,
    negative_slope: float = 0.2,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: Transposed | None = None,
) -> Tensor:
    """Return GATv2's attention, [num_dst, H, Dv]; scores are <a, leaky_relu(src[u] + dst[v] + edge[e])>.

    src [num_src, H, D], dst [num_dst, H, D], a [H, D], value [num_src, H, Dv], edge [E, H, D] or None; the
    other arguments are those of `attention`.
    """
    given = (src, dst, a, value, edge)
    return _attend(GATV2, indptr, indices, given, negative_slope, dropout, edge_ids, clock, layer, transposed)


def attention_dot(
    indptr: Tensor,
    indices: Tensor,
    key: Tensor,
    query: Tensor,
    value: Tensor,
    scale: float = 1.0,
    *,
    edge: Tensor | None = None,
    dropout: float = 0.0,
    edge_ids: Tensor | None = None,
    clock: Tensor | None = None,
    layer: int = 0,
    transposed: Transposed | None = None,
) -> Tensor:
    """Return dot-product attention, [num_dst, H, Dv]; scores are scale * <key[u], query[v]> + edge[e].

    key [num_src, H, D], query [num_dst, H, D], value [num_src, H, Dv], edge [E, H] or None; the other
    arguments are those of `attention`.
    """
    given = (key, query, None, value, edge)
    return _attend(DOT, indptr, indices, given, scale, dropout, edge_ids, clock, layer, transposed)


Given = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]


def _attend(
    kind: int,
    indptr: Tensor,
    indices: Tensor,
    given: Given,
    slope: float,
    dropout: float,
    edge_ids: Tensor | None,
    clock: Tensor | None,
    layer: int,
    transposed: Transposed | None,
) -> Tensor:
    if not 0.0 <= dropout <= 1.0:
        raise InputError(f"dropout must be in 0 … 1, got {dropout}")
    src, dst, a, value, edge = _checked(kind, indptr, indices, given)
    if dropout > 0.0:
        clock = torch.randint(0, 2**62, (3,), device="cpu") if clock is None else as_clock(clock)
    if edge_ids is not None:
        edge_ids = edge_ids.to(torch.int64)
        if edge_ids.shape != indices.shape:
            raise GraphError(f"expected {indices.shape[0]} edge ids, got shape {list(edge_ids.shape)}")
    draws = (float(dropout), edge_ids, clock, layer) if dropout > 0.0 else (0.0, None, None, 0)
    pointers = transposed if transposed is not None else (None, None, None)
    operator = attention_keeping_op if _keeps(kind, src, dst, edge) else attention_op
    csr, inputs = (as_indptr(indptr), as_indices(indices)), (src, dst, a, value, edge)
    out: Tensor = eager(operator, kind, *csr, *inputs, float(slope), *draws, *pointers)[0]
    return out


def _keeps(kind: int, src: Tensor, dst: Tensor, edge: Tensor | None) -> bool:
    """Return whether backward will have use for what `keeping_forward` keeps."""
    if kind != ADDITIVE or not (src.is_cpu or src.is_cuda) or not torch.is_grad_enabled():
        return False
    # a gradient of each edge's term needs the other pass anyway
    return (src.requires_grad or dst.requires_grad) and not (edge is not None and edge.requires_grad)


def _checked(kind: int, indptr: Tensor, indices: Tensor, given: Given) -> Given:
    """Return the float inputs in one type, or say which has the wrong shape."""
    src, dst, a, value, edge = given
    scores = "[num_src, heads]" if kind == ADDITIVE else "[num_src, heads, dim]"
    if value.dim() != 3 or src.dim() != (2 if kind == ADDITIVE else 3):
        got = f"{list(value.shape)} and {list(src.shape)}"
        raise InputError(f"attention: expected value [num_src, heads, dim] and sources {scores}, got {got}")
    tail = src.shape[1:]
    edge_tail = tail if kind == GATV2 else tail[:1]
    expected = [
        ("the source side", src, (value.shape[0], value.shape[1], *tail[1:])),
        ("the destination side", dst, (indptr.shape[0] - 1, *tail)),
        ("a", a, tuple(tail)),
        ("edge", edge, (indices.shape[0], *edge_tail)),
    ]
    for name, tensor, shape in expected:
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise InputError(f"attention: expected {name} of shape {list(shape)}, got {list(tensor.shape)}")
    given = in_one_type(given)
    if not given[0].is_floating_point():
        raise InputError(f"attention: expected floating-point inputs, got {given[0].dtype}")
    return given


def in_one_type(given: Given) -> Given:
    """Return the inputs (src, dst, a, value, edge) in the type that holds all of them."""
    src, dst, a, value, edge = given
    dtype = value.dtype
    for tensor in (src, dst, a, edge):
        dtype = dtype if tensor is None else torch.promote_types(dtype, tensor.dtype)
    a, edge = (None if tensor is None else tensor.to(dtype) for tensor in (a, edge))
    return src.to(dtype), dst.to(dtype), a, value.to(dtype), edge


_SCHEMA = (
    "int kind, Tensor indptr, Tensor indices, Tensor src, Tensor dst, Tensor? a, Tensor value, Tensor? edge, "
    "float slope, float dropout, Tensor? edge_ids, Tensor? clock, int layer, "
    "Tensor? t_indptr, Tensor? t_indices, Tensor? t_edges"
)


def _forward_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    args = reference.Arguments(*arguments)
    num_rows, (heads, dim) = args.indptr.shape[0] - 1, args.value.shape[1:]
    top = args.value.new_empty((num_rows, heads), dtype=accumulator(args.value.dtype))
    return args.value.new_empty((num_rows, heads, dim)), top, torch.empty_like(top)


def _keeping_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, top, total = _forward_fake(*arguments)
    return out, top, total, top.new_empty((out.shape[0], reference.kept_width(*out.shape[1:])))


def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    args, wanted = reference.Arguments(*arguments[:16]), arguments[-1]
    inputs = (args.src, args.dst, args.a, args.value, args.edge)
    return tuple(
        args.value.new_empty(x.shape if want and x is not None else (0,)) for x, want in zip(inputs, wanted)
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    args = reference.Arguments(*inputs)
    saved = output[1:]  # top, total and what is kept, if anything
    ctx.mark_non_differentiable(*saved)
    ctx.set_materialize_grads(False)  # or backward is given zeros of their size
    ctx.plain = (args.kind, args.slope, args.dropout, args.layer)
    # a strategy moves its clock in place; the draws of this call must stay what they were
    clock = None if args.clock is None else args.clock.clone()
    # indptr to edge, what draws are keyed by, the transposed CSR
    ctx.save_for_backward(*args[1:8], args.edge_ids, clock, *args[13:], *saved)


def _backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 16
    indptr, indices, src, dst, a, value, edge, edge_ids, clock, *rest = ctx.saved_tensors
    transposed, saved = rest[:3], rest[3:]
    kind, slope, dropout, layer = ctx.plain
    given = (kind, indptr, indices, src, dst, a, value, edge, slope, dropout, edge_ids, clock, layer)
    if torch.is_grad_enabled():  # a gradient of this one is wanted
        inputs = (*given, *transposed)
        return tuple(plain_gradients(reference.forward, inputs, ctx.needs_input_grad, (grad,)))
    places = (3, 4, 5, 6, 7)
    wanted = [bool(ctx.needs_input_grad[place]) for place in places]
    pointers = transposed_or_built(tuple(transposed), indptr, indices, value.shape[0])
    if len(saved) == 2:  # these are all edges: dot is their sum
        operator, saved = attention_backward_op, [*saved, None]
    else:
        operator = attention_keeping_backward_op
    grads = eager(operator, *given, *pointers, *saved, grad, wanted)
    result: list[Tensor | None] = [None] * 16
    for place, want, made in zip(places, wanted, grads):
        result[place] = made if want else None
    return tuple(result)


attention_backward_op: Any = define(
    f"attention_backward({_SCHEMA}, Tensor top, Tensor total, Tensor? dot, Tensor grad, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    reference=native_attention.reference_backward,
    cpu=native_attention.backward,
    gpu="attention_backward.backward",
    fake=_backward_fake,
)

attention_op: Any = define(
    f"attention({_SCHEMA}) -> (Tensor, Tensor, Tensor)",
    reference=reference.forward,
    cpu=native_attention.forward,
    gpu="attention.forward",
    fake=_forward_fake,
    setup=_setup,
    backward=_backward,
)

attention_keeping_backward_op: Any = define(
    f"attention_keeping_backward({_SCHEMA}, Tensor top, Tensor total, Tensor kept, Tensor grad, "
    "bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    reference=native_attention.reference_keeping_backward,
    cpu=native_attention.keeping_backward,
    gpu="attention_backward.keeping_backward",
    fake=_backward_fake,
)

attention_keeping_op: Any = define(
    f"attention_keeping({_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=reference.keeping_forward,
    cpu=native_attention.keeping_forward,
    gpu="attention.keeping_forward",
    fake=_keeping_fake,
    setup=_setup,
    backward=_backward,
)
