"""The native core: finds libweftcore, loads it with ctypes and says what it is.

The core has a plain C interface and knows nothing of Python or torch, so one library serves every version of
both. Where it is missing, of another version, or switched off by `WEFT_NATIVE=0`, `library()` is None and the
operators run on their reference form; a warning says so once.

Loading it loads OpenMP's runtime. This module imports torch first, so the process has one runtime: torch's.
"""

import ctypes
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, WeftError, WeftWarning
from weft.process import FILE_NAME, core_path

ABI_VERSION = 17
HUGE_BYTES = 1 << 24

# The codes of csrc/core.h; a type that is not here runs on the reference.
DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
INDEX_CODES = {torch.int32: 0, torch.int64: 1}

POINTER, INT, LONG, DOUBLE = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_double
# Argument types of every function of the C interface, in its order; each returns a status (see `check`).
SIGNATURES: dict[str, list[type]] = {
    "weft_spmm": [*[POINTER] * 9, *[LONG] * 5, *[INT] * 4],
    "weft_extreme": [*[POINTER] * 5, *[LONG] * 4, *[INT] * 4],
    "weft_extreme_backward": [*[POINTER] * 7, *[LONG] * 4, *[INT] * 3],
    "weft_sddmm_dot": [*[POINTER] * 9, *[LONG] * 5, *[INT] * 4],
    "weft_sddmm": [*[POINTER] * 5, INT, *[LONG] * 4, *[INT] * 3],
    "weft_edge_softmax": [*[POINTER] * 3, *[LONG] * 3, *[INT] * 2],
    "weft_edge_softmax_backward": [*[POINTER] * 4, *[LONG] * 3, *[INT] * 2],
    "weft_dropout": [*[POINTER] * 4, INT, LONG, LONG, POINTER, LONG, LONG, ctypes.c_uint64, DOUBLE, INT, INT],
    "weft_draw": [POINTER, LONG, LONG, POINTER, LONG, LONG, POINTER, INT],
    "weft_gather": [POINTER, LONG, POINTER, LONG, LONG, POINTER, INT, INT],
    "weft_group": [POINTER, LONG, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT, INT, INT],
    "weft_build_csr": [POINTER, POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER, INT, INT],
    "weft_relabel": [POINTER, LONG, POINTER, POINTER, POINTER],
    "weft_fingerprint": [POINTER, LONG, POINTER, INT],
    "weft_advise": [POINTER, LONG],
    "weft_set_level": [INT],
    "weft_detected_level": [],
}
# Functions that give the size of a C structure, to the size of its mirror here.
SIZES: dict[str, int] = {}


class _Core:
    """The library, loaded on first use, and why it is not there."""

    def __init__(self) -> None:
        self.enabled = True
        self.reason = ""

    @cached_property
    def library(self) -> ctypes.CDLL | None:
        if os.environ.get("WEFT_NATIVE", "1") == "0":
            self.reason = "switched off by WEFT_NATIVE=0"
            return None  # asked for: no warning
        try:
            return load(find())
        except (OSError, AttributeError, WeftError) as error:
            self.reason = str(error)
        message = f"weft runs on its slower reference kernels: {self.reason}"
        warnings.warn(message, WeftWarning, stacklevel=4)
        return None


_core = _Core()


def load(path: Path | None) -> ctypes.CDLL:
    """Return the library at `path`, its functions declared; raise if it is missing or of another version."""
    if path is None:
        raise WeftError(f"{FILE_NAME} is not installed; reinstall weft where a C++ compiler is found")
    core = ctypes.CDLL(str(path))
    version = core.weft_abi_version()
    if version != ABI_VERSION:
        raise WeftError(f"{path} has interface {version}, expected {ABI_VERSION}; reinstall weft")
    core.weft_features.restype = ctypes.c_char_p
    _declare(core, SIGNATURES)
    _compare(core, SIZES)
    return core


def library() -> ctypes.CDLL | None:
    """Return the loaded core, or None when operators must use their reference form."""
    return _core.library if _core.enabled else None


def enabled() -> bool:
    """Return whether operators may leave their reference form; see `disabled`."""
    return _core.enabled


def available() -> bool:
    """Return whether operators run on the native core."""
    return library() is not None


def describe() -> str:
    """Return one line: where the core was found and the CPU features it uses, or why it is not used."""
    core = library()
    if core is None:
        return f"not used: {_core.reason or 'disabled'}"
    return f"{find()} ({features()})"


def features() -> str:
    """Return the instruction set that the kernels use on this processor."""
    core = library()
    if core is None:
        return "none"
    text: bytes = core.weft_features()
    return text.decode()


def find() -> Path | None:
    """Return the path of the library, None where there is none."""
    return core_path()


@contextmanager
def disabled() -> Iterator[None]:
    """Run the operators on their reference form inside the `with` block."""
    before, _core.enabled = _core.enabled, False
    try:
        yield
    finally:
        _core.enabled = before


def declare(signatures: dict[str, list[type]], *, sizes: Mapping[str, int] | None = None) -> None:
    """Add the argument types of further C functions; called by a family of operators when it is imported.

    `sizes` are functions that give the bytes of a structure, to the bytes of its mirror in Python.
    """
    SIGNATURES.update(signatures)
    SIZES.update(sizes or {})
    if "library" in vars(_core) and _core.library is not None:
        _declare(_core.library, signatures)
        _compare(_core.library, sizes or {})


def _declare(core: ctypes.CDLL, signatures: dict[str, list[type]]) -> None:
    for name, argtypes in signatures.items():
        function = getattr(core, name)
        function.argtypes, function.restype = argtypes, INT


def _compare(core: ctypes.CDLL, sizes: Mapping[str, int]) -> None:
    for name, expected in sizes.items():
        if (size := getattr(core, name)()) != expected:
            raise WeftError(f"{core._name}: {name} is {size}, expected {expected}; reinstall weft")


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised CPU tensor; a large one in huge pages: most of writing it is page faults."""
    # the CPU is named: a program may have set another default device, and the core writes to an address
    out = torch.empty(shape, dtype=dtype, device="cpu")
    if out.nbytes >= HUGE_BYTES and (core := library()) is not None:
        core.weft_advise(out.data_ptr(), out.nbytes)
    return out


# torch gives no address to a tensor without elements, and to the core a null pointer means that it is absent.
_NOTHING = (ctypes.c_double * 8)()
_PLAIN = (Tensor, torch.nn.Parameter)


def valueless(tensor: Tensor) -> bool:
    """Return whether a tensor has a shape and no values, as torch's FakeTensor."""
    return type(tensor) not in _PLAIN and tensor.untyped_storage().device.type == "meta"


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's data for the core; refuse a tensor without values."""
    if not valueless(tensor):
        found = tensor.data_ptr()
        if found or not tensor.numel():
            return found
    raise WeftError(f"the native core reads memory, and a tensor of shape {[*tensor.shape]} has no values")


def pointer(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's data, or None (a null pointer) for None."""
    return None if tensor is None else address(tensor) or ctypes.addressof(_NOTHING)


def dense(tensor: Tensor | None) -> Tensor | None:
    """Return the tensor with its values in row-major order, or None."""
    return None if tensor is None else tensor.contiguous()


def threads() -> int:
    """Return the number of threads to give to a kernel: torch's."""
    return torch.get_num_threads()


def codes(values: Tensor, indices: Tensor) -> tuple[int, int] | None:
    """Return the core's codes of two types, or None where operators must use their reference form."""
    value, index = DTYPE_CODES.get(values.dtype), INDEX_CODES.get(indices.dtype)
    return None if library() is None or value is None or index is None else (value, index)


def call(name: str, *arguments: Any, what: str = "") -> None:
    """Call a C function, and raise if it reports a mistake in its arguments.

    A tensor goes as the address of its values in row-major order, None as a null pointer. What the function
    writes to must lie so already, as `empty` makes it.
    """
    # Tensors made dense here must live until the call is over; what stands for a tensor that is not here, as
    # rows by columns do, refuses to be.
    dense = [value.contiguous() if hasattr(value, "contiguous") else value for value in arguments]
    plain = [pointer(value) if isinstance(value, Tensor) else value for value in dense]
    check(getattr(library(), name)(*plain), what or name.removeprefix("weft_"))


def check(status: int, what: str) -> None:
    """Raise if a C function reported a mistake in its arguments."""
    if status == 0:
        return
    if status == 1:
        raise GraphError(
            f"{what}: an index points outside its rows; build the CSR with weft.kernels.build_csr"
        )
    if status == 2:
        raise GraphError(f"{what}: indptr does not run from 0 to the number of edges")
    if status == 3:
        raise MemoryError(f"{what}: out of memory")
    raise WeftError(f"{what}: the native core returned {status}")
