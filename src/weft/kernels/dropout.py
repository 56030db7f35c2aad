"""Dropout by counter draws: the mask is a function of (clock, stream, layer, id, lane) and is never stored.

Backward draws the same mask again. Keyed by global ids, it is the same for one process and for many.
"""

import math
from typing import Any

import torch
from torch import Tensor

from weft.draw import Stream, threshold
from weft.errors import InputError
from weft.kernels import native, reference
from weft.kernels.registration import as_clock, as_indices, define, eager


def dropout(
    x: Tensor,
    ids: Tensor,
    p: float,
    *,
    clock: Tensor,
    stream: int = Stream.DROPOUT,
    layer: int = 0,
    lanes: Tensor | None = None,
) -> Tensor:
    """Return x with each element zeroed with probability p, the others times 1 / (1 − p).

    Row i of x [N, ...] is keyed by ids[i], its columns are the lanes. With `lanes` (int [nnz]) x is 1-D and
    value i is keyed by (ids[i], lanes[i]): the stored values of a sparse matrix. clock is int64 (seed, epoch,
    step).
    """
    if not 0.0 <= p <= 1.0:
        raise InputError(f"dropout must be in 0 … 1, got {p}")
    if ids.shape[0] != x.shape[0] or (lanes is not None and lanes.shape != x.shape):
        raise InputError(f"expected one id (and lane) for each of {x.shape[0]} rows, got {ids.shape[0]} ids")
    if p == 0.0:
        return x
    lanes = None if lanes is None else as_indices(lanes)
    out: Tensor = eager(dropout_op, x, ids, p, as_clock(clock), int(stream), layer, lanes)
    return out


def _dropout_cpu(
    x: Tensor, ids: Tensor, p: float, clock: Tensor, stream: int, layer: int, lanes: Tensor | None
) -> Tensor:
    code = native.DTYPE_CODES.get(x.dtype)
    if not native.available() or code is None:
        return reference.dropout(x, ids, p, clock, stream, layer, lanes)
    out = native.empty(x.shape, x.dtype)
    places = (ids.to(torch.int64), lanes, 0 if lanes is None else native.INDEX_CODES[lanes.dtype])
    sizes, draws = (x.shape[0], math.prod(x.shape[1:])), (clock, stream, layer)
    scale = (threshold(p), reference.keep_scale(p))
    native.call("weft_dropout", x, out, *places, *sizes, *draws, *scale, code, native.threads())
    return out


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ids, p, clock, stream, layer, lanes = inputs
    # a strategy moves its clock in place; the mask of this call must stay what it was
    ctx.save_for_backward(ids, clock.clone(), lanes)
    ctx.draw = (p, stream, layer)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    ids, clock, lanes = ctx.saved_tensors
    p, stream, layer = ctx.draw
    grad_x = eager(dropout_op, grad, ids, p, clock, stream, layer, lanes)
    return grad_x, None, None, None, None, None, None


dropout_op: Any = define(
    "dropout(Tensor x, Tensor ids, float p, Tensor clock, int stream, int layer, Tensor? lanes) -> Tensor",
    reference=reference.dropout,
    cpu=_dropout_cpu,
    gpu="dropout.dropout",
    fake=lambda x, *rest: x.new_empty(x.shape),
    setup=_setup,
    backward=_backward,
)
