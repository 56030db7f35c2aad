"""Which operators run on Triton: finds out once whether it can be used, and says why where it cannot.

Triton is imported when the first tensor on a GPU comes, not before. Where it is missing or the GPU is too
old, operators run on their reference form, and a warning says so once. Under Triton's interpreter
(`TRITON_INTERPRET=1`, set before Python starts) the same kernels serve CPU tensors: slow, for tests.
"""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from weft.errors import WeftWarning
from weft.kernels import native

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
OLDEST = (8, 0)

Form = Callable[..., Any]
_one_capture = threading.RLock()


class _Triton:
    """Whether Triton can be used here, found out on first use, and why not."""

    def __init__(self) -> None:
        self.reason = ""

    @cached_property
    def usable(self) -> bool:
        self.reason = _obstacle()
        if self.reason:
            message = f"weft runs on its slower reference kernels on the GPU: {self.reason}"
            warnings.warn(message, WeftWarning, stacklevel=4)
        return not self.reason


_triton = _Triton()


def available() -> bool:
    """Return whether operators on GPU tensors run on Triton."""
    return (INTERPRETED or torch.cuda.is_available()) and _triton.usable


def describe() -> str:
    """Return one line: the GPU and the version of Triton, or why operators do not use them."""
    if not INTERPRETED and not torch.cuda.is_available():
        return "not used: torch sees no GPU"
    if not _triton.usable:
        return f"not used: {_triton.reason}"
    where = "its interpreter on the CPU" if INTERPRETED else torch.cuda.get_device_name()
    return f"Triton {import_module('triton').__version__} on {where}"


def _obstacle() -> str:
    """Return why Triton cannot be used, or nothing."""
    try:
        import_module("triton")
    except ImportError:
        return "Triton is not installed; pip install 'weft[gpu]'"
    if INTERPRETED:
        return ""
    if torch.version.hip is None and (found := torch.cuda.get_device_capability()) < OLDEST:
        return f"{torch.cuda.get_device_name()} has compute capability {found}, Triton needs {OLDEST}"
    return ""


def form(name: str, reference: Form) -> Form:
    """Return the operator `module.function` of weft.kernels.triton, imported when it is first called."""
    module, function = name.split(".")
    found: list[Form] = []

    def run(*arguments: Any) -> Any:
        if not _triton.usable:
            return reference(*arguments)
        if not found:
            found.append(getattr(import_module(f"weft.kernels.triton.{module}"), function))
        if INTERPRETED or torch.cuda.device_count() == 1:
            return found[0](*arguments)
        with torch.cuda.device(next(x.device for x in arguments if isinstance(x, Tensor) and x.is_cuda)):
            return found[0](*arguments)

    return run


def look_at(indptr: Tensor, num_edges: int) -> None:
    """Find out now, where waiting for the GPU holds nobody up, what operators will ask about a CSR."""
    if indptr.is_cuda and _triton.usable:
        import_module("weft.kernels.triton.plan").plan_of(indptr, num_edges)


def bound(indptr: Tensor, num_edges: int) -> None:
    """Have operators deal with the hubs of edges by source without asking the GPU how many there are."""
    if _triton.usable:
        import_module("weft.kernels.triton.plan").bounded(indptr, num_edges)


def without_hubs(indptr: Tensor, num_edges: int) -> None:
    """Say that no row has more edges than `most_edges()`."""
    if _triton.usable:
        import_module("weft.kernels.triton.plan").without_hubs(indptr, num_edges)


def kept_with(indptr: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that operators remember with the pointers of a CSR, and let go with them."""
    plan: Any = sys.modules.get("weft.kernels.triton.plan")  # where it was not imported nothing is remembered
    found: tuple[Tensor, ...] = () if plan is None else plan.kept_with(indptr)
    return found


def allows_tf32() -> bool:
    """Return whether torch was told, in its old words or its new, to multiply float32 in fewer bits."""
    matmul: Any = torch.backends.cuda.matmul
    found = getattr(matmul, "fp32_precision", None)  # torch 2.9; it refuses the old question afterwards
    return bool(matmul.allow_tf32) if found is None else found == "tf32"


def most_edges() -> int:
    """Return how many edges a row may have that is not cut; 0 where Triton is not used."""
    return int(import_module("weft.kernels.triton.plan").SEGMENT) if available() else 0


@contextmanager
def capturing(
    graph: "torch.cuda.CUDAGraph", *, pool: Any = None, stream: "torch.cuda.Stream | None" = None
) -> Iterator[None]:
    """Capture what is launched in the `with` block; one thread at a time, others launch on meanwhile."""
    with (
        _one_capture,
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
    ):
        yield


def uncaptured() -> AbstractContextManager[Any]:
    """Keep every other thread from capturing: torch's own draws, as of its dropout, fail beside a capture."""
    return _one_capture


def interpreted(gpu: Form, reference: Form) -> Form:
    """Return the form for CPU tensors under the interpreter; `native.disabled()` is obeyed."""

    def run(*arguments: Any) -> Any:
        return gpu(*arguments) if native.enabled() else reference(*arguments)

    return run
