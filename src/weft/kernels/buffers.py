"""Tensors in memory of the native core, which takes the memory of a batch that is gone for the next one.

Much of the time of writing a large new tensor goes into page faults, which memory that was used before does
not have.
"""

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from weft.kernels import native

REUSED_BYTES = 1 << 19
"""Smaller tensors are left to torch, as kSmall of csrc/memory.cpp leaves them to malloc."""

native.declare({"weft_allocate": [ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)]})

# Called without giving up the GIL, which a call this short would only have to wait for again.
_SHARE = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int)
_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule = _CAPSULE(("PyCapsule_New", ctypes.pythonapi))
_KINDS = {torch.int32: 0, torch.int64: 0, torch.uint8: 1, torch.float64: 2}  # DLPack's


def reused(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised CPU tensor that is made anew for every batch: in memory used before."""
    core, bytes_wanted = native.library(), math.prod(shape) * dtype.itemsize
    if core is None or bytes_wanted < REUSED_BYTES:
        return torch.empty(shape, dtype=dtype, device="cpu")
    address = ctypes.c_void_p()
    native.check(core.weft_allocate(bytes_wanted, ctypes.byref(address)), "memory of a batch")
    return adopt(core, address.value or 0, bytes_wanted, torch.uint8).view(dtype).view(*shape)


def adopt(core: ctypes.CDLL, address: int, count: int, dtype: torch.dtype) -> Tensor:
    """Return the tensor [count] of an array that the core allocated; it is given back with its last view."""
    shared = _share(core)(address, count, _KINDS[dtype], 8 * dtype.itemsize)
    tensor: Tensor = from_dlpack(_capsule(shared, b"dltensor", None))
    return tensor


@functools.cache
def _share(core: ctypes.CDLL) -> Callable[..., Any]:
    return _SHARE(("weft_share", core))
