"""Arrays that lie in files: which file an array was mapped from, so that others map it too instead of a copy,
and pieces of it that are read and let go: pages of a mapping count as this process's memory once touched.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

_mapped: "WeakValueDictionary[int, np.memmap[Any, Any]]" = WeakValueDictionary()
_stamps: dict[int, tuple[int, ...]] = {}


class InFile(NamedTuple):
    """Where the values of an array begin."""

    path: Path
    offset: int


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
