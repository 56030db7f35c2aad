"""Rows in a file, mapped: features larger than memory.

The file is a plain `.npy`, a folder that `graph.save` wrote, or a folder made by `MmapStore.create`, which
may keep rows in fewer bits. Only the pages of the rows asked for are read; the system is told not to read
around them, and those of the next rows are asked for while the present ones are copied. Pages lie in the
system's cache, which gives them up when memory is needed and is one for all processes; those that count as
this process's are let go when they are many.
"""

import contextlib
import ctypes
import json
import math
import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from weft import kernels
from weft.errors import FormatError, InputError
from weft.format import MANIFEST, as_path, atomic_write, read_directory
from weft.kernels import native
from weft.kernels.buffers import reused
from weft.reading.arrays import read_header
from weft.reading.json_values import WholeNumber, read_json
from weft.reading.mapped import map_bytes
from weft.stores.base import FeatureRows, Store, stores
from weft.stores.memory import put_rows
from weft.stores.storage import Storage, decode, encode, row_bytes, storage_type

_NOTE = "store.json"
_KIND, _VERSION = "weft store", 1
KEPT = 1 << 31
"""Bytes of files that a process has as its own before it lets those of a store go."""
_P, _L, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIGNATURES: dict[str, list[type]] = {
    "weft_gather_mapped": [_P, _L, _P, _L, _L, _P, _I, _I],
}


@stores.add("mmap")
class MmapStore(Store):
    """Read rows from a file without reading the rest of it; `mode="r+"` allows writing.

    `node_type` names the nodes whose features are meant where a graph's folder has several types; `dtype` is
    what rows are given in, where it is not that of the file.
    """

    on_workers: ClassVar[bool] = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Literal["r", "r+"] = "r",
        node_type: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if mode not in ("r", "r+"):
            raise InputError(f"mode must be 'r' or 'r+', got {mode!r}")
        self.path, self.mode = as_path(path), mode
        self.writable = mode == "r+"
        self.values, self.scale, kept, self.storage = _open(self.path, self.writable, node_type)
        super().__init__(self.values.shape, kept if dtype is None else dtype)
        self._begun: dict[str, Any] | None = None

    @classmethod
    def open(cls, rows: FeatureRows, *, path: str | Mapping[str, Any]) -> "MmapStore":
        """Return the store of the file `path`, which every worker reads by itself."""
        file = rows.option("path", path)
        if isinstance(rows.x, MmapStore) and rows.x.path == as_path(file):
            return rows.x
        return cls(file, dtype=rows.dtype)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        shape: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        storage: Storage | None = None,
    ) -> "MmapStore":
        """Return a new store to be filled by `write`; it can be opened by others after `close`.

        Its space on disk is taken at once, so a disk that is too small is told of here.
        """
        folder = as_path(path)
        kept = dtype if storage is None else storage_type(storage)
        note = {"kind": _KIND, "version": _VERSION, "shape": list(shape)}
        note |= {"dtype": _name(dtype), "kept": _name(kept)}
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True)
            _reserve(folder / "values.bin", math.prod(shape) * kept.itemsize)
            if kept == torch.int8:
                _reserve(folder / "scale.bin", shape[0] * 4)
        except FileExistsError:
            raise FormatError(f"{folder} exists; remove it or write elsewhere") from None
        except OSError as error:
            _remove(missing)
            raise FormatError(f"cannot write {folder}: {error.strerror}") from None
        made = cls.__new__(cls)
        made.path, made.mode, made.writable = folder, "r+", True
        made.values, made.scale = _mapped_folder(folder, note, writable=True)
        made.storage = _name(kept) if kept != dtype else None
        Store.__init__(made, shape, dtype)
        made._begun = note
        return made

    @classmethod
    def write_rows(
        cls,
        path: str | os.PathLike[str],
        x: Tensor,
        *,
        storage: Storage | None = None,
        chunk: int = 65536,
    ) -> "MmapStore":
        """Return the store of a matrix written to a folder, piece by piece."""
        store = cls.create(path, x.shape, dtype=x.dtype, storage=storage)
        for start in range(0, len(x), chunk):
            rows = x[start : start + chunk]
            store.write(torch.arange(start, start + len(rows)), rows)
        store.close()
        return cls(path)

    @property
    def row_bytes(self) -> int:
        """The bytes that a row is kept in."""
        return row_bytes(self.values, self.scale)

    def close(self) -> None:
        """Finish a store that was created: from now on it can be opened."""
        if self._begun is not None:
            for name in ("values.bin", "scale.bin"):
                _sync(self.path / name)
            atomic_write(self.path / _NOTE, json.dumps(self._begun).encode())
            self._begun, self.writable = None, False

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"path": str(self.path), "storage": self.storage}

    def _gather(self, ids: Tensor) -> Tensor:
        scale = None if self.scale is None else _take(self.scale, ids)
        rows = decode(_take(self.values, ids), scale, self.dtype)
        _let_go(self.values)
        return rows

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        kept = encode(rows.cpu(), self.storage)
        for into, part in ((self.values, kept.values), (self.scale, kept.scale)):
            if into is not None and part is not None:
                put_rows(into, ids, part)
        _let_go(self.values)


def _let_go(values: Tensor) -> None:
    """Let the pages of a mapping go once this process has many pages of files; the system's cache has them.

    Nothing is lost: nobody writes to a mapping of his own, and what is written to a file's is the file's.
    """
    if values.numel() and _pages_of_files() > KEPT:
        start = values.data_ptr() & -mmap.PAGESIZE
        length = values.data_ptr() + values.nbytes - start
        ctypes.CDLL(None).madvise(_P(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED)


def _pages_of_files() -> int:
    """Return the bytes of files that count as this process's memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def _take(rows: Tensor, ids: Tensor) -> Tensor:
    if not hasattr(native.library(), "weft_gather_mapped") or rows.numel() == 0:
        return kernels.gather(rows, ids)
    native.declare(_SIGNATURES)
    out = reused((ids.numel(), *rows.shape[1:]), rows.dtype)
    size = math.prod(rows.shape[1:]) * rows.element_size()
    kinds = (native.INDEX_CODES[ids.dtype], native.threads())
    arguments = (rows, len(rows), ids, ids.numel(), size, out, *kinds)
    native.call("weft_gather_mapped", *arguments, what="rows of a file")
    return out


def _open(
    path: Path, writable: bool, node_type: str | None
) -> tuple[Tensor, Tensor | None, torch.dtype, str | None]:
    """Return the values, their scales, the type they are used in, and the storage where it is another."""
    if path.is_dir() and (path / MANIFEST).is_file():
        values = _of_graph(path, writable, node_type)
        return values, None, values.dtype, None
    if path.is_dir():
        note = _note(path)
        values, scale = _mapped_folder(path, note, writable)
        dtype = getattr(torch, note["dtype"])
        return values, scale, dtype, None if note["kept"] == note["dtype"] else note["kept"]
    if not path.is_file():
        raise FormatError(f"{path} does not exist")
    values = _mapped_npy(path, writable)
    return values, None, values.dtype, None


def _of_graph(path: Path, writable: bool, node_type: str | None) -> Tensor:
    arrays, meta = read_directory(path, verify=False)
    entries = {entry["type"]: entry for entry in meta.get("node_data", []) if entry["name"] == "x"}
    if node_type is None and len(entries) == 1:
        node_type = next(iter(entries))
    if writable or node_type not in entries or "sparse" in entries[node_type]:
        why = "a graph's folder has checksums and is for reading only" if writable else ""
        why = why or f"no dense features x of {node_type!r} in it; node types with x: {', '.join(entries)}"
        raise FormatError(f"{path}: {why}")
    array, kind = arrays[entries[node_type]["array"]], getattr(torch, entries[node_type]["dtype"])
    if not isinstance(array, np.memmap) or array.filename is None:  # without rows nothing is mapped
        return torch.empty(array.shape, dtype=kind)
    return _mapped(Path(array.filename), array.shape, kind, array.offset, writable=False)


_SHAPE = {"kind": str, "version": WholeNumber(), "dtype": str, "kept": str, "shape": [WholeNumber()]}


def _note(folder: Path) -> dict[str, Any]:
    if not (folder / _NOTE).exists():
        raise FormatError(f"{folder} holds no {_NOTE}: no store, or one that was not finished")
    note = read_json(folder / _NOTE, _SHAPE)
    names = {_name(kind) for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    right = (
        (note["kind"], note["version"]) == (_KIND, _VERSION)
        and note["dtype"] in names
        and note["kept"] in {*names, "int8"}
        and math.prod(note["shape"]) < 2**62
        and len(note["shape"]) > 0
    )
    if not right:
        raise FormatError(f"{folder / _NOTE}: does not describe a store that this weft reads")
    return dict(note)


def _mapped_folder(folder: Path, note: dict[str, Any], writable: bool) -> tuple[Tensor, Tensor | None]:
    shape, kept = note["shape"], getattr(torch, note["kept"])
    values = _mapped(folder / "values.bin", shape, kept, 0, writable)
    scale = None
    if kept == torch.int8:
        scale = _mapped(folder / "scale.bin", shape[:1], torch.float32, 0, writable)
    return values, scale


def _mapped_npy(path: Path, writable: bool) -> Tensor:
    with open(path, "rb") as file:
        header = read_header(file, path)
    shape, fortran, dtype = header.shape, header.fortran, header.dtype
    kinds = {"<f8": torch.float64, "<f4": torch.float32, "<f2": torch.float16}
    if dtype.str not in kinds or fortran or not shape:
        order = ", in column order" if fortran else ""
        raise FormatError(
            f"{path}: expected rows of float16, float32 or float64, got {dtype.str} {shape}{order}"
        )
    return _mapped(path, shape, kinds[dtype.str], header.offset, writable)


def _mapped(path: Path, shape: Sequence[int], dtype: torch.dtype, offset: int, writable: bool) -> Tensor:
    count = math.prod(shape)
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    if path.is_symlink() or not path.is_file():
        raise FormatError(f"{path}: not a file in the store's folder")
    needed, size = offset + count * dtype.itemsize, path.stat().st_size
    if size < needed:
        raise FormatError(f"{path}: {tuple(shape)} needs {needed:,} bytes, the file holds {size:,}")
    try:
        if writable:
            with open(path, "r+b") as file:
                held_bytes = mmap.mmap(file.fileno(), needed, access=mmap.ACCESS_WRITE)
        else:
            held_bytes = map_bytes(path, needed)
        held_bytes.madvise(mmap.MADV_RANDOM)  # else the system reads the neighbours of every row too
    except OSError as error:
        raise FormatError(f"cannot map {path}: {error.strerror}") from None
    flat = torch.frombuffer(held_bytes, dtype=dtype, count=count, offset=offset)
    return flat.reshape(tuple(shape))


def _reserve(path: Path, size: int) -> None:
    with open(path, "xb") as file:
        if size:
            os.posix_fallocate(file.fileno(), 0, size)


def _remove(made: Sequence[Path]) -> None:
    """Remove a folder with what is in it, then those around it, where nobody put anything meanwhile."""
    for index, folder in enumerate(made):
        if index == 0:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _sync(path: Path) -> None:
    if path.exists():
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
