"""Steps on learned rows whose gradients come in parts: each row is changed once, by the core or a kernel."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.kernels import gpu, native
from weft.stores.optim import rowwise_adagrad_rows, summed_rows

Part = tuple[Tensor, Tensor]
"""Rows [m] and their gradients [m, d]."""
_P, _L, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double
_SIGNATURE: dict[str, list[type]] = {"weft_rowwise_adagrad": [_P, _P, _L, _L, _L, _P, _P, _P, _D, _D, _I, _I]}


def rowwise_adagrad_parts(
    values: Tensor, total: Tensor, parts: Sequence[Part], *, lr: float, eps: float = 1e-10
) -> None:
    """Take the step of `rowwise_adagrad_rows` on rows that may come several times, in place.

    Gradients of a row are added up first, in the order given; so any number of threads gives the same bits.
    """
    if values.is_cuda and values.dtype == torch.float32 and gpu.available():
        from weft.kernels.triton.rows import rowwise_adagrad  # where there is a GPU

        rows, grads = (torch.cat(each) for each in zip(*parts))
        rowwise_adagrad(values, total, rows, grads, lr=lr, eps=eps)
        return
    in_core = values.is_cpu and native.available()
    if not in_core or values.dtype not in (torch.float32, torch.float64) or not values.is_contiguous():
        rows, grads = (torch.cat(each) for each in zip(*parts))
        rowwise_adagrad_rows(values, total, *summed_rows(rows, grads), lr=lr, eps=eps)
        return
    native.declare(_SIGNATURE)
    ready = [(rows.long().contiguous(), grads.to(values.dtype).contiguous()) for rows, grads in parts]
    places, sums = ((_P * len(ready))(*(native.address(each[part]) for each in ready)) for part in (0, 1))
    counts = (_L * len(ready))(*(len(each[0]) for each in ready))
    arguments = (values, total, *values.shape, len(ready), places, sums, counts, lr, eps)
    kinds = (native.DTYPE_CODES[values.dtype], native.threads())
    native.call("weft_rowwise_adagrad", *arguments, *kinds, what="gradients of learned rows")
