"""Kernels that are made in threads before they are asked for: those of backward while forward's is made.

Triton makes a kernel mostly outside of Python's lock, so several at once take little longer than one. What
cannot be made here is made when it is first launched, as without this.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor

from weft.compiler.triton.form import KernelForm
from weft.kernels import gpu

Key = tuple[KernelForm, tuple[tuple[str, object], ...]]
_coming: dict[Key, "Future[None]"] = {}


def key_of(form: KernelForm, constants: Mapping[str, object]) -> Key:
    """Return what names a kernel: its form, and what is fixed in it."""
    return form, tuple(sorted(constants.items()))


def make(
    kernel: Any, form: KernelForm, constants: Mapping[str, object], given: Sequence[Tensor | int]
) -> None:
    """Begin to make a kernel for arguments of such types, on the device of the first."""
    key = key_of(form, constants)
    if key not in _coming and not gpu.INTERPRETED:
        _coming[key] = _threads().submit(_made, kernel, dict(constants), given)


def wait(form: KernelForm, constants: Mapping[str, object]) -> None:
    """Wait for a kernel that is being made."""
    future = _coming.get(key_of(form, constants))
    if future is not None and not future.done():
        with suppress(Exception):  # it is told where the kernel is launched
            future.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, "weft-kernels")


def _made(kernel: Any, constants: dict[str, object], given: Sequence[Tensor | int]) -> None:
    first = given[0]
    assert isinstance(first, Tensor)
    with torch.cuda.device(first.device):
        kernel.warmup(*given, grid=(1,), **constants)
