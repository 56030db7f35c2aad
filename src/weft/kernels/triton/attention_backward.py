"""Fused attention backward: the weights are computed again from each row's maximum and sum.

Two passes, each reading one row per edge: over the edges of each destination (`attention_to_destinations`),
then over those of each source (`attention_to_sources`). Where the edges are only some of those of a row, the
sum d of the first pass is an argument. Nothing of the size of the edges is stored unless it is the gradient
of the edge term.
"""

from typing import Any

from torch import Tensor

from weft.kernels import reference_attention as reference
from weft.kernels.native_attention import reference_backward, reference_keeping_backward
from weft.kernels.reference_attention import Arguments
from weft.kernels.triton.attention_tiles import Wanted
from weft.kernels.triton.attention_to_destinations import from_kept, to_destinations
from weft.kernels.triton.attention_to_sources import to_sources
from weft.kernels.triton.spmm import FLOATS


def backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `native_attention.reference_backward` returns."""
    if Arguments(*arguments[:16]).value.dtype not in FLOATS:
        return reference_backward(*arguments)
    top, total, dot, grad, wanted = arguments[16:]
    return _backward(Arguments(*arguments[:16]), top, total, None, grad, wanted, dot=dot)


def keeping_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Return what `backward` returns, from what `keeping_forward` kept: one pass over the edges, not two."""
    if Arguments(*arguments[:16]).value.dtype not in FLOATS:
        return reference_keeping_backward(*arguments)
    top, total, kept, grad, wanted = arguments[16:]
    return _backward(Arguments(*arguments[:16]), top, total, kept, grad, wanted)


def _backward(
    args: Arguments,
    top: Tensor,
    total: Tensor,
    kept: Tensor | None,
    grad: Tensor,
    flagged: list[bool],
    *,
    dot: Tensor | None = None,
) -> tuple[Tensor, ...]:
    wanted = Wanted(*(bool(want and x is not None) for x, want in zip(_inputs(args), flagged)))
    grad = grad.to(args.value.dtype).contiguous()
    if kept is None:
        stat, near = to_destinations(args, wanted, grad, top, total, dot)
    else:
        stat, near = from_kept(args, grad, top, total, kept)
    value, far, term = to_sources(args, wanted, grad, stat)
    return _finished(args, wanted, value, far, near, term)


def _inputs(args: Arguments) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
    return args.src, args.dst, args.a, args.value, args.edge


def _finished(
    args: Arguments,
    wanted: Wanted,
    value: Tensor | None,
    far: Tensor | None,
    near: Tensor,
    term: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the gradients of (src, dst, a, value, edge), empty where they are not wanted."""
    factor: Tensor | float = 1.0
    d_a = None
    if args.kind == reference.GATV2:
        assert args.a is not None
        factor = args.a.float()
        if wanted.a:
            # leaky(x) is x times its slope, so the sum over edges falls apart into sums over nodes
            pairs = [(args.src, far), (args.dst, near), (args.edge, term)]
            d_a = sum((x.float() * y).sum(0) for x, y in pairs if x is not None and y is not None)
    elif args.kind == reference.DOT:
        factor = args.slope
    plain = args.kind == reference.ADDITIVE
    d_src, d_dst = (x if x is None or plain else x.mul_(factor) for x in (far, near))
    d_edge = term.mul_(factor) if term is not None and args.kind == reference.GATV2 else term
    made = (d_src, d_dst, d_a, value, d_edge)
    return tuple(
        x.to(args.value.dtype) if want and isinstance(x, Tensor) else args.value.new_empty(0)
        for x, want in zip(made, wanted)
    )
