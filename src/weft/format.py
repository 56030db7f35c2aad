"""Folders of arrays: how every graph, part and record of weft lies on disk.

A folder holds `manifest.json` and plain `.npy` files. The manifest names each file with its dtype, shape,
size and SHA-256, and carries a checksum of itself. A folder appears under its name whole or not at all: it is
written beside its place, synced and renamed. Reading maps the arrays copy-on-write: nothing is loaded before
it is touched, and a change in memory never reaches the file. Numpy alone is needed, and nothing is ever
unpickled.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError
from weft.placing import PARTIAL, move_into_place, sync_directory, tidy_after_killed_writers, writer_tag
from weft.reading.arrays import expect_characters, read_header
from weft.reading.json_values import Each, WholeNumber, expect_shape, read_json
from weft.reading.mapped import map_values, remember

VERSION = 1
MANIFEST = "manifest.json"
RECORDS = "records.json"
"""The manifest of a folder of records, by which it is told from one of arrays."""
MESSAGES = "messages"
"""The graph that the messages of pairs flow along: a folder among the records."""
_KIND = "weft"
_FILE = {"file": str, "bytes": WholeNumber(), "sha256": str}
_MANIFEST = {
    "meta": Each(object),
    "arrays": Each(_FILE | {"dtype": str, "shape": [WholeNumber()]}),
    "files": Each(_FILE),
}
_DAMAGED = "damaged, its SHA-256 differs from the manifest; write the folder again"


def write_directory(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    overwrite: bool = False,
    *,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a folder of arrays that appears at `path` complete, checksummed, or not at all.

    An array named `a` becomes `a.npy`; `meta` is any JSON object; `files` are extra files by name. An
    existing folder is replaced only with `overwrite` and only if it is one of ours.
    """
    target = as_path(path)
    tidy_after_killed_writers(target)
    _check_target(target, overwrite)
    for name in [*arrays, *(files or {})]:
        _check_name(target, name)
    with _writing(target) as partial:
        entries = {name: _write_array(partial / f"{name}.npy", array) for name, array in arrays.items()}
        extras = {name: _write_bytes(partial / name, data) for name, data in (files or {}).items()}
        _write_manifest(partial, meta, entries, extras)
        sync_directory(partial)
        move_into_place(partial, target)


@contextlib.contextmanager
def new_directory(
    path: str | os.PathLike[str], overwrite: bool = False, *, marker: str | tuple[str, ...] = MANIFEST
) -> Iterator[Path]:
    """Give an empty folder to fill, which takes its place at `path` when the `with` block ends without error.

    For folders of folders. An existing one is replaced only with `overwrite` and only if it holds `marker`,
    or one of several.
    """
    target = Path(path)
    tidy_after_killed_writers(target)
    _check_target(target, overwrite, marker)
    with _writing(target) as partial:
        yield partial
        sync_directory(partial)
        move_into_place(partial, target)


class ArrayFile:
    """An array written to a file a few rows at a time, for arrays that are too large to hold.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = ArrayFile(Path(folder) / "a.npy", np.int64, (3,))
    ...     file.append(np.array([1, 2]))
    ...     file.append(np.array([3]))
    ...     file.close()["shape"], np.load(Path(folder) / "a.npy").tolist()
    ([3], [1, 2, 3])
    """

    def __init__(self, path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), shape
        self.rows = 0
        self._file = open(path, "wb")  # noqa: SIM115 - it stays open between pieces
        self._through = _Hashed(self._file)
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._through, header)  # type: ignore[arg-type]

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        assert rows.shape[1:] == self.shape[1:], f"{self.path.name}: rows of {rows.shape[1:]}"
        self.rows += len(rows)
        self._through.write(rows.reshape(-1).view(np.uint8).data)

    def close(self) -> dict[str, Any]:
        """End the file and return its line of the manifest."""
        assert self.rows == self.shape[0], f"{self.path.name}: {self.rows} rows of {self.shape[0]}"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        descr = np.lib.format.dtype_to_descr(self.dtype)
        entry: dict[str, Any] = {"file": self.path.name, "dtype": descr}
        entry |= {"shape": list(self.shape), "bytes": self._through.size}
        return entry | {"sha256": self._through.digest.hexdigest()}


def seal_directory(
    folder: Path,
    meta: Mapping[str, Any],
    *,
    arrays: Mapping[str, dict[str, Any]] | None = None,
    files: Sequence[str] = (),
    manifest: str = MANIFEST,
) -> None:
    """Write the manifest of a folder that `new_directory` gave, with `ArrayFile`s and extra files in it."""
    arrays = arrays or {}
    for name in [*arrays, *files]:
        _check_name(folder, name)
    extras = {}
    for name in files:
        path = folder / name
        with open(path, "rb") as file:  # who wrote it need not have synced it
            os.fsync(file.fileno())
        extras[name] = {"file": name, "bytes": path.stat().st_size, "sha256": _sha256(path)}
    _write_manifest(folder, meta, dict(arrays), extras, manifest)


def read_directory(
    path: str | os.PathLike[str], verify: bool = True
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a folder, mapped copy-on-write, and its meta object.

    `verify` reads every byte once to compare checksums; without it only sizes, dtypes and shapes are
    compared.
    """
    folder = as_path(path)
    manifest = read_manifest(folder)
    with _told(folder):
        arrays = {
            name: _read_array(folder, name, entry, verify) for name, entry in manifest["arrays"].items()
        }
        for name, entry in manifest["files"].items():
            _check_file(folder, name, entry, verify)
    return arrays, manifest["meta"]


def read_array(folder: Path, name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    """Return one array of a folder, mapped copy-on-write, by its line of the manifest."""
    with _told(folder):
        return _read_array(folder, name, entry, verify=False)


def manifest_checksum(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a folder's manifest, by which two folders of the same path are told apart."""
    return str(read_manifest(Path(path))["checksum"])


def read_extra(path: str | os.PathLike[str], name: str) -> bytes:
    """Return the bytes of an extra file of a folder, compared with its checksum."""
    return checked_bytes(Path(path), name, read_manifest(Path(path))["files"])


def checked_bytes(folder: Path, name: str, entries: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that a manifest's `files` name, read once and compared with its checksum."""
    if name not in entries:
        raise FormatError(f"{folder}: the manifest names no file {name!r}")
    with _told(folder):
        path = _check_file(folder, name, entries[name], verify=False)
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != entries[name]["sha256"]:
        raise FormatError(f"{path}: {_DAMAGED}")
    return data


def expect_no_link(path: Path) -> None:
    """Refuse a symbolic link: what it leads to is no part of the folder."""
    if path.is_symlink():
        raise FormatError(f"{path}: a symbolic link; weft reads only files that lie in the folder itself")


def as_path(path: Any) -> Path:
    """Return a path, or refuse what is none."""
    if not isinstance(path, str | os.PathLike):
        raise FormatError(f"expected the path of a file or folder, got {path!r}")
    return Path(path)


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path of an empty file to write, which takes its place at `path` when the `with` block ends.

    `path` holds either the old bytes or all the new ones, also after an error or a crash.
    """
    target = as_path(path)
    with _told(target, "write"):
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PARTIAL, dir=target.parent)
        try:
            os.chmod(name, 0o666 & ~_umask())
            yield Path(name)
            os.fsync(handle)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        sync_directory(target.parent)


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write one file so that `path` holds either the old bytes or all the new ones, also after a crash."""
    with new_file(path) as partial:
        partial.write_bytes(data)


# Writing


def _check_target(target: Path, overwrite: bool, marker: str | tuple[str, ...] = MANIFEST) -> None:
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise FormatError(
            f"{target} already exists; choose another path, or overwrite it (--overwrite, overwrite=True)"
        )
    markers = (marker,) if isinstance(marker, str) else marker
    if target.is_symlink() or not any((target / name).is_file() for name in markers):
        raise FormatError(f"{target} exists and is not a folder written by weft; it is left as it is")


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[Path]:
    """Give a fresh folder beside the target; whatever is left of it when an error passes is removed."""
    with _told(target, "write"):
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name}.{writer_tag()}."
        partial = Path(tempfile.mkdtemp(prefix=prefix, suffix=PARTIAL, dir=target.parent))
        os.chmod(partial, 0o777 & ~_umask())
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise FormatError(
            f"{path.name}: dtype {array.dtype} cannot be stored; give numbers, booleans or fixed strings"
        )
    with open(path, "wb") as file:
        through = _Hashed(file)
        np.lib.format.write_array(through, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    descr = np.lib.format.dtype_to_descr(array.dtype)
    entry = {"file": path.name, "dtype": descr, "shape": list(array.shape)}
    return entry | {"bytes": through.size, "sha256": through.digest.hexdigest()}


class _Hashed:
    """A file that hashes what is written, so that nothing is read back.

    As it is no file to numpy, arrays come in pieces, and a full disk is reported as one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self.file.write(data)


def _write_bytes(path: Path, data: bytes) -> dict[str, Any]:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"file": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _write_manifest(
    folder: Path,
    meta: Mapping[str, Any],
    arrays: Mapping[str, Any],
    files: Mapping[str, Any],
    name: str = MANIFEST,
) -> None:
    manifest = {"kind": _KIND, "version": VERSION, "meta": meta, "arrays": arrays, "files": files}
    manifest["checksum"] = _manifest_checksum(manifest)
    _write_bytes(folder / name, json.dumps(manifest, indent=1).encode())


def _umask() -> int:
    value = os.umask(0o022)
    os.umask(value)
    return value


# Reading


def read_manifest(folder: Path, name: str = MANIFEST) -> dict[str, Any]:
    """Return the manifest of a folder, compared with its own checksum: `meta`, `arrays` and `files`."""
    path = folder / name
    if not folder.exists():
        tidy_after_killed_writers(folder)  # one may have been killed between the two renames of an overwrite
    if not folder.exists():
        raise FormatError(f"{folder} does not exist")
    if not path.is_file():
        what = (
            "a folder of records written by weft flatten" if name == RECORDS else "a folder written by weft"
        )
        raise FormatError(f"{folder} holds no {name}: it is not {what}")
    expect_no_link(path)
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("kind") != _KIND:
        raise FormatError(f"{path}: not a manifest written by weft")
    version = manifest.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise FormatError(f"{path}: format version {version}, this weft reads up to {VERSION}; upgrade weft")
    if manifest.get("checksum") != _manifest_checksum(manifest):
        raise FormatError(f"{path}: damaged, its checksum differs; write the folder again")
    expect_shape(manifest, _MANIFEST, path)
    return dict(manifest)


def _read_array(folder: Path, name: str, entry: Mapping[str, Any], verify: bool) -> NDArray[Any]:
    path = _check_file(folder, name, entry, verify)
    with open(path, "rb") as file:
        header = read_header(file, path)
    shape, dtype, offset = header.shape, header.dtype, header.offset
    if list(shape) != entry["shape"] or np.lib.format.dtype_to_descr(dtype) != entry["dtype"]:
        expected = f"{entry['dtype']} {tuple(entry['shape'])}"
        raise FormatError(f"{path}: the manifest says {expected}, the file holds {dtype.str} {shape}")
    needed = offset + header.bytes
    if path.stat().st_size < needed:
        raise FormatError(
            f"{path}: {shape} of {dtype.str} needs {needed:,} bytes, the file holds {path.stat().st_size:,}"
        )
    order: Any = "F" if header.fortran else "C"
    if needed == offset:  # an empty range cannot be mapped
        return np.empty(shape, dtype, order)
    values = map_values(path, dtype, shape, offset, order)
    if verify:
        expect_characters(values, path)
    return remember(values)


def _check_file(folder: Path, name: str, entry: Mapping[str, Any], verify: bool) -> Path:
    _check_name(folder, name)
    if not isinstance(entry, dict) or entry.get("file") not in (name, f"{name}.npy"):
        raise FormatError(f"{folder / MANIFEST}: {name!r} names a file outside its folder or of another name")
    path = folder / str(entry["file"])
    expect_no_link(path)
    if not path.is_file():
        raise FormatError(f"{path}: missing, the manifest lists {entry['bytes']:,} bytes")
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise FormatError(
            f"{path}: truncated or changed, {size:,} bytes where the manifest lists {entry['bytes']:,}"
        )
    if verify and _sha256(path) != entry["sha256"]:
        raise FormatError(f"{path}: {_DAMAGED}")
    return path


def _check_name(folder: Path, name: str) -> None:
    plain = (
        name not in ("", ".", "..", MANIFEST)
        and not set(name) & {"/", "\\", "\0"}
        and not name.startswith(".")
    )
    if not plain:
        raise FormatError(f"{folder}: {name!r} is not a plain file name inside the folder")


# Both


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_checksum(manifest: Mapping[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _told(path: Path, verb: str = "read") -> Iterator[None]:
    """Turn an operating system's error into one line that says what could not be done and why.

    A folder within a folder that is being written is told as the outer one, whose name the user gave.
    """
    try:
        yield
    except (OSError, FormatError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        hint = ""
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "; free some space or write elsewhere. No part of it was left behind"
        raise FormatError(f"cannot {verb} {path}: {cause.strerror or cause}{hint}") from cause
