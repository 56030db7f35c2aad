"""Memory of the host that a GPU reads by itself, over the link between them."""

import contextlib
import weakref

import torch
from torch import Tensor


def reachable(x: Tensor) -> Tensor:
    """Return the matrix in pinned memory: itself, pinned where it lies while it is there, or a copy."""
    x = x.contiguous()
    if x.is_pinned() or not x.numel():
        return x
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    storage = x.untyped_storage()
    address = storage.data_ptr()
    if int(runtime.cudaHostRegister(address, storage.nbytes(), 0)) != 0:  # a file's pages, for instance
        _forget_error()
        return x.pin_memory()
    weakref.finalize(storage, runtime.cudaHostUnregister, address)
    return x


def _forget_error() -> None:
    """Have CUDA forget what went wrong: the next launch of this thread would be blamed for it."""
    with contextlib.suppress(RuntimeError):
        torch.ones((), device="cuda")  # torch has no call for it but the check after a launch
