"""Arrays that lie in files: which file an array was mapped from, so that others map it too instead of a copy,
and pieces of it that are read and let go: pages of a mapping count as this process's memory once touched.
"""

import math
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

_mapped: "WeakValueDictionary[int, np.memmap[Any, Any]]" = WeakValueDictionary()
_stamps: dict[int, tuple[int, ...]] = {}


# Else the system sets memory aside for a copy of every page, and refuses files larger than it has.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_COPIED = {"flags": mmap.MAP_PRIVATE | _NO_RESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}


class InFile(NamedTuple):
    """Where the values of an array begin."""

    path: Path
    offset: int


def map_bytes(path: Path, size: int, start: int = 0) -> mmap.mmap:
    """Return bytes of a file, however many; what is written to them is a copy of this process."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), size, offset=start, **_COPIED)


def map_values(
    path: Path, dtype: Any, shape: Sequence[int], offset: int = 0, order: Literal["C", "F"] = "C"
) -> "np.memmap[Any, Any]":
    """Return values of a file as an array, there are some; nothing is read before it is touched.

    As `numpy.memmap` does, but of files that are larger than memory, too.
    """
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    held = map_bytes(path, offset - start + math.prod(shape) * np.dtype(dtype).itemsize, start)
    made: Any = np.ndarray.__new__(
        np.memmap, tuple(shape), dtype, buffer=held, offset=offset - start, order=order
    )
    made._mmap, made.filename, made.offset, made.mode = held, Path(path).resolve(), offset, "c"
    mapped: np.memmap[Any, Any] = made
    return mapped


def remember(array: "np.memmap[Any, Any]") -> "np.memmap[Any, Any]":
    """Return a mapping that is never written to, noted as the content of its file."""
    _mapped[array.ctypes.data] = array
    _stamps[array.ctypes.data] = _stamp(str(array.filename))
    return array


def file_of(array: NDArray[Any]) -> InFile | None:
    """Return where a mapped array lies; None for one in memory, or where the file has been replaced since."""
    held = _mapped.get(array.ctypes.data)
    if held is None or held.nbytes != array.nbytes or held.dtype != array.dtype:
        return None
    path = str(held.filename)
    there = os.path.isfile(path) and _stamp(path) == _stamps[array.ctypes.data]
    return InFile(Path(path), held.offset) if there else None


def read_between(array: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
    """Return values begin … end − 1 of a flat array; of a mapped one a copy that leaves no page behind."""
    found = file_of(array)
    if found is None:
        return array[begin:end]
    return np.fromfile(found.path, array.dtype, end - begin, offset=found.offset + begin * array.itemsize)


def _stamp(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
