"""Arrays in `.npy` and `.npz` files, read by what their headers promise.

A header names a type, a shape and with them a number of bytes: all three are compared with what may be read
and with what the file holds before memory is taken. An archive gives its arrays when they are asked for, so
that what nobody uses costs nothing.
"""

import math
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.reading.bounds import expect_room
from weft.reading.damage import reading
from weft.reading.mapped import map_values

Array = NDArray[Any]

_KINDS = "biufUS"  # numbers and words; no objects, records, dates or complex numbers
_PIECE = 1 << 20
# Numpy parses a header as Python code, and CPython 3.11 can fail at that in several threads at once.
_parsing = threading.Lock()
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class Header:
    """What the beginning of a `.npy` file says of the array that follows."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int
    """Where the values begin."""

    @property
    def bytes(self) -> int:
        """The bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def told(self) -> str:
        """The array and the bytes that it needs, for people."""
        return f"{self.dtype} {self.shape} needs {self.bytes:,} bytes"


def read_header(file: IO[bytes], where: Path | str) -> Header:
    """Return what a `.npy` file says of its array, or refuse a type or shape that no data has."""
    with reading(where):
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise FormatError(
                f"{where}: a .npy file of version {version}; versions (1, 0) and (2, 0) are read"
            )
        with _parsing:
            shape, fortran, dtype = _HEADERS[version](file)
        if dtype.kind not in _KINDS or dtype.hasobject:
            told = "Python objects (a pickle)" if dtype.hasobject else f"values of type {dtype}"
            raise FormatError(
                f"{where}: holds {told}, which weft never opens; only numbers and words are read"
            )
        # True is 1 in Python, in the text of a header, too.
        # Numpy bounds the other sizes beside a 0, too, and gives values of no bytes one each.
        if (
            any(type(size) is not int or size < 0 for size in shape)
            or math.prod(max(size, 1) for size in shape) * max(dtype.itemsize, 1) >= 2**62
        ):
            raise FormatError(f"{where}: says it has the shape {shape}, which no array has")
        if dtype.itemsize == 0 and math.prod(shape) > 0:
            raise FormatError(f"{where}: says it has {math.prod(shape):,} words of no bytes at all")
        return Header(tuple(shape), fortran, dtype, file.tell())


def read_npy(path: Path) -> Array:
    """Return the array of a `.npy` file, mapped into memory and not yet read; writes stay in memory."""
    with reading(path), open(path, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise FormatError(f"{path}: holds an archive of arrays (.npz), expected a single one (.npy)")
        file.seek(0)
        header = read_header(file, path)
        held = path.stat().st_size - header.offset
        if held < header.bytes:
            raise FormatError(f"{path}: truncated, {header.told}, it holds {held:,}")
        order: Any = "F" if header.fortran else "C"
        if header.bytes == 0:  # an empty range cannot be mapped
            return np.empty(header.shape, header.dtype, order)
        values = map_values(path, header.dtype, header.shape, header.offset, order)
        expect_characters(values, path)
        return values


class NpzArrays(Mapping[str, Array]):
    """The arrays of a `.npz` file by name; each is read when it is asked for, and checked first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path), open(path, "rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise FormatError(f"{path}: holds a single array (.npy), expected an archive (.npz)")
            with zipfile.ZipFile(file) as archive:
                names = [info.filename for info in archive.infolist()]
        self._members = {name.removesuffix(".npy"): name for name in names}
        if len(self._members) < len(names):
            raise FormatError(f"{path}: holds two arrays of one name")

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Array:
        """Return one array, whose header, size and checksum fit together."""
        member, where = self._members[name], f"{self.path}: {name}"
        with reading(where), zipfile.ZipFile(self.path) as archive:
            with archive.open(member) as file:
                header = read_header(file, where)
                promised = archive.getinfo(member).file_size - header.offset
                if promised != header.bytes:
                    raise FormatError(f"{where}: {header.told}, it holds {promised:,}")
                expect_room(header.bytes, self.path, name)
                values = _values(file, header.bytes, where).view(header.dtype)
            expect_characters(values, where)
            return values.reshape(header.shape, order="F" if header.fortran else "C")


def expect_characters(values: Array, where: Path | str) -> None:
    """Raise where words hold numbers that are no characters: no text can be made of them, or written."""
    if values.dtype.kind != "U" or not values.size or not values.dtype.itemsize:
        return
    held = (
        np.ascontiguousarray(values)
        .reshape(-1)
        .view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    )
    if int(held.max()) > sys.maxunicode or bool(((held >= 0xD800) & (held < 0xE000)).any()):
        raise FormatError(f"{where}: damaged, holds words of numbers that are no characters")


def _values(file: IO[bytes], count: int, where: str) -> Array:
    """Return the bytes that follow in a file, read in pieces so that they are held once."""
    values = np.empty(count, np.uint8)
    done = 0
    while done < count and (piece := file.read(min(count - done, _PIECE))):
        values[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    # One more is asked for, since an archive compares its checksum where a member ends.
    if done < count or file.read(1):
        raise FormatError(f"{where}: truncated, {done:,} of {count:,} bytes are there")
    return values
