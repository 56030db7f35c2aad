"""The attention operators on the native core: what csrc/attention.h takes and gives."""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from weft.draw import Stream, fold, threshold
from weft.kernels import native
from weft.kernels import reference_attention as reference
from weft.kernels.csr import transposed_or_built
from weft.kernels.reference import keep_scale
from weft.kernels.reference_attention import ADDITIVE, Arguments
from weft.kernels.registration import accumulator


class _Call(ctypes.Structure):
    """csrc/attention.h: Call."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("kind", "is_double", "wide_indices", "wide_edges", "threads")]
        + [
            (name, ctypes.c_int64)
            for name in ("num_dst", "num_src", "num_edges", "heads", "dim", "value_dim")
        ]
        + [("slope", ctypes.c_double), ("keep_scale", ctypes.c_double)]
        + [("draw_key", ctypes.c_uint64), ("drop_below", ctypes.c_uint64)]
        + [(name, ctypes.c_void_p) for name in ("indptr", "indices", "t_indptr", "t_indices", "t_edges")]
        + [(name, ctypes.c_void_p) for name in ("edge_ids", "src", "dst", "a", "value", "edge")]
        + [(name, ctypes.c_void_p) for name in ("out", "row_max", "row_sum", "grad", "dot")]
        + [(name, ctypes.c_void_p) for name in ("d_src", "d_dst", "d_a", "d_value", "d_edge", "kept")]
    )


native.declare(
    {"weft_attention_forward": [ctypes.c_void_p], "weft_attention_backward": [ctypes.c_void_p]},
    sizes={"weft_attention_call_bytes": ctypes.sizeof(_Call)},
)


def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `reference_attention.forward` returns."""
    library, given = native.library(), Arguments(*arguments)
    if library is None or not _supported(given):
        return reference.forward(*arguments)
    return _forward(library, given, None)


def keeping_forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `reference_attention.keeping_forward` returns."""
    library, given = native.library(), Arguments(*arguments)
    if library is None or not _supported(given):
        return reference.keeping_forward(*arguments)
    shape = (given.indptr.shape[0] - 1, reference.kept_width(*given.value.shape[1:]))
    kept = native.empty(shape, accumulator(given.value.dtype))
    return *_forward(library, given, kept), kept


def _forward(library: ctypes.CDLL, given: Arguments, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    args = _prepared(given)
    num_rows, (heads, dim) = args.indptr.shape[0] - 1, args.value.shape[1:]
    out = native.empty((num_rows, heads, dim), args.value.dtype)
    top = args.value.new_empty((num_rows, heads))
    total = torch.empty_like(top)
    call = _call(args, out, top, total, *[None] * 7, kept)
    native.check(library.weft_attention_forward(ctypes.byref(call)), "attention")
    return _narrow(out, given.value), top, total


def backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `reference_attention.backward` returns; gradients that are not wanted are empty."""
    library, given = native.library(), Arguments(*arguments[:16])
    if library is None or not _supported(given):
        return reference_backward(*arguments)
    top, total, dot, grad, wanted = arguments[16:]
    return _backward(library, given, top, total, None, grad, wanted, dot=dot)


def keeping_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `backward` returns, from what `keeping_forward` kept."""
    library, given = native.library(), Arguments(*arguments[:16])
    if library is None or not _supported(given):
        return reference_keeping_backward(*arguments)
    top, total, kept, grad, wanted = arguments[16:]
    return _backward(library, given, top, total, kept.contiguous(), grad, wanted)


def _backward(
    library: ctypes.CDLL,
    given: Arguments,
    top: Tensor,
    total: Tensor,
    kept: Tensor | None,
    grad: Tensor,
    wanted: list[bool],
    *,
    dot: Tensor | None = None,
) -> tuple[Tensor, ...]:
    pointers = transposed_or_built(given[13:], given.indptr, given.indices, given.value.shape[0])
    t_indices = pointers[1].to(given.indices.dtype).contiguous()  # the core reads both in one width
    t_edges = native.dense(pointers[2])
    args = _prepared(given)._replace(t_indptr=pointers[0].contiguous(), t_indices=t_indices, t_edges=t_edges)
    grad = _padded(grad.to(args.value.dtype))
    top, total = top.contiguous(), total.contiguous()
    dot = None if dot is None else dot.contiguous()
    inputs = (args.src, args.dst, args.a, args.value, args.edge)
    grads = [
        native.empty(x.shape, x.dtype) if want and x is not None else None for x, want in zip(inputs, wanted)
    ]
    call = _call(args, None, top, total, grad, dot, *grads, kept)
    native.check(library.weft_attention_backward(ctypes.byref(call)), "attention backward")
    originals = (given.src, given.dst, given.a, given.value, given.edge)
    return tuple(
        given.value.new_empty(0) if made is None or like is None else _narrow(made, like)
        for made, like in zip(grads, originals)
    )


def reference_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return the wanted gradients of `reference_attention.backward`, empty ones for the others."""
    grads = reference.backward(*arguments)
    return tuple(made if want else made.new_empty(0) for made, want in zip(grads, arguments[-1]))


def reference_keeping_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `reference_backward` returns; it has no use for what was kept."""
    return reference_backward(*arguments[:18], None, *arguments[19:])


def _supported(args: Arguments) -> bool:
    """Return whether the core has this type of values and of indices."""
    return args.value.dtype in native.DTYPE_CODES and args.indices.dtype in native.INDEX_CODES


def _prepared(args: Arguments) -> Arguments:
    """Return the arguments as the core takes them: dense, in an accumulator's type, heads padded."""
    dtype = accumulator(args.value.dtype)
    wide = [None if x is None else x.to(dtype) for x in (args.src, args.dst, args.a, args.edge)]
    heads_last = args.kind == ADDITIVE
    src, dst, a, edge = (None if x is None else x.contiguous() if heads_last else _padded(x) for x in wide)
    if args.kind == reference.DOT and wide[3] is not None:
        edge = wide[3].contiguous()
    assert src is not None
    assert dst is not None
    return args._replace(
        indptr=args.indptr.contiguous(),
        indices=args.indices.contiguous(),
        src=src,
        dst=dst,
        a=a,
        value=_padded(args.value.to(dtype)),
        edge=edge,
        edge_ids=None if args.edge_ids is None else args.edge_ids.contiguous(),
    )


def _padded(x: Tensor) -> Tensor:
    """Return x with zeros added to its last dimension: whole vectors."""
    dim = x.shape[-1]
    width = reference.padded_width(dim)
    return x.contiguous() if dim == width else pad(x, (0, width - dim))


def _narrow(x: Tensor, like: Tensor) -> Tensor:
    """Return x without the padding, in the type of `like`."""
    if x.shape[-1] != like.shape[-1]:
        x = x[..., : like.shape[-1]].clone()  # a view of one row is dense, and may not be given out
    return x.to(like.dtype).contiguous()


def _call(args: Arguments, *results: Tensor | None) -> _Call:
    """Return the arguments in the order of the fields; `results` are those from `out` on, all or some."""
    num_src, heads, value_dim = args.value.shape
    key, below, keep = _draws(args)
    # One call of the constructor: setting the fields by name takes longer than a kernel on a small graph.
    return _Call(
        args.kind,
        args.value.dtype == torch.float64,
        args.indices.dtype == torch.int64,
        args.t_edges is not None and args.t_edges.dtype == torch.int64,
        native.threads(),
        args.indptr.shape[0] - 1,
        num_src,
        args.indices.shape[0],
        heads,
        0 if args.kind == ADDITIVE else args.src.shape[-1],
        value_dim,
        args.slope,
        keep,
        key,
        below,
        native.address(args.indptr),
        native.address(args.indices),
        *[
            None if x is None else native.address(x)
            for x in (*args[13:], args.edge_ids, *args[3:8], *results)
        ],
    )


def _draws(args: Arguments) -> tuple[int, int, float]:
    """Return the key of the draws, the bound below which one drops, and what the others are scaled by."""
    if args.dropout == 0.0:
        return 0, 0, 0.0
    assert args.clock is not None
    seed, epoch, step = args.clock.tolist()
    key = fold(seed, Stream.ATTENTION, epoch, step, args.layer)
    return key, threshold(args.dropout), keep_scale(args.dropout)
