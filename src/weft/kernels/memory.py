"""Tensors in memory of the native core, which takes the memory of a batch that is gone for the next one.

Much of the time of writing a large new tensor goes into page faults, which memory that was used before does
not have.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.kernels import native

REUSED_BYTES = 1 << 19
"""Smaller tensors are left to torch, as kSmall of csrc/memory.cpp leaves them to malloc."""

native.declare(
    {
        "weft_allocate": [ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)],
        "weft_free": [ctypes.c_void_p],
    }
)


def reused(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised CPU tensor that is made anew for every batch: in memory used before."""
    core, bytes_wanted = native.library(), math.prod(shape) * dtype.itemsize
    if core is None or bytes_wanted < REUSED_BYTES:
        return torch.empty(shape, dtype=dtype, device="cpu")
    address = ctypes.c_void_p()
    native.check(core.weft_allocate(bytes_wanted, ctypes.byref(address)), "memory of a batch")
    return adopt(core, address.value or 0, bytes_wanted, np.uint8).view(dtype).view(*shape)


def adopt(core: ctypes.CDLL, address: int, count: int, dtype: Any) -> Tensor:
    """Return the tensor [count] of an array that the core allocated; it is given back with its last view."""
    return torch.from_numpy(np.asarray(_Array(address, count, np.dtype(dtype), core.weft_free)))


class _Array:
    """An array of the core; numpy keeps it for as long as it shows it."""

    def __init__(self, address: int, count: int, dtype: "np.dtype[Any]", free: Any) -> None:
        self.address, self.free = address, free
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": dtype.str,
            "version": 3,
        }

    def __del__(self) -> None:
        self.free(self.address)
