"""Rows in shared memory under a name, for several processes of one machine: the graph store of DGL 0.3.

A store is a folder of /dev/shm that only its user can enter. Every owner holds a shared lock on a file in it,
which the system takes away when the process ends, however it ends. The last owner to close removes the
folder; where the last was killed, the next process that opens or makes any store finds the lock free and
removes what is left. Making one is a rename, so a store appears with its lock held or not at all.

A child that a process forks shares its hold. The graph itself needs no store: `weft.load` maps its folder,
and the pages are one for all processes.
"""

import contextlib
import errno
import fcntl
import json
import math
import mmap
import os
import re
import shutil
import stat
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from weft import kernels, process
from weft.comm.group import Group
from weft.errors import FormatError, GraphError, InputError
from weft.graph.graph import Graph
from weft.reading.damage import reading
from weft.reading.json_values import WholeNumber, read_json
from weft.stores.base import FeatureRows, Store, stores
from weft.stores.memory import put_rows

SHM = Path("/dev/shm")
PATIENCE = 120.0
"""Seconds to wait for a lock that others hold only while they make a tensor, or remove a store."""
_LOCK = "owners"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8")
_NOTE = {"shape": [WholeNumber()], "dtype": str}
_AGGREGATE_ROWS = 1 << 16  # rows made at a time


class SharedSpace:
    """A named set of tensors in shared memory and this process's share in owning it.

    It ends with `close`, when nothing refers to it any more, and at the latest when the process does.
    """

    def __init__(self, name: str, folder: Path, lock: int) -> None:
        self.name, self.folder = name, folder
        self._hold = weakref.finalize(self, _let_go, folder, lock, os.getpid())
        self._tensors: dict[str, Tensor] = {}

    @classmethod
    def create(cls, name: str) -> "SharedSpace":
        """Make a new one; a living one of this name is refused, a dead one removed."""
        sweep()
        folder = _folder(name)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        with _told(name):
            os.mkdir(partial, 0o700)
            lock = os.open(partial / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            _wait_for(lock, fcntl.LOCK_SH, name)
            try:
                os.rename(partial, folder)
            except OSError as error:
                os.close(lock)
                shutil.rmtree(partial, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise InputError(
                        f"a shared store {name!r} is in use; open it, or choose a name"
                    ) from None
                raise
        return cls(name, folder, lock)

    @classmethod
    def open(cls, name: str) -> "SharedSpace":
        """Become one more owner of a living one."""
        sweep()
        folder = _folder(name)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise FormatError(f"no shared store {name!r}: its owners must live; create it first") from None
        except PermissionError:
            raise FormatError(f"the shared store {name!r} belongs to another user") from None
        try:
            _wait_for(lock, fcntl.LOCK_SH, name)  # whoever holds it alone is removing it, and soon done
        except InputError:
            os.close(lock)
            raise
        if not _same(folder / _LOCK, lock):
            os.close(lock)
            raise FormatError(f"no shared store {name!r}: its last owner has just closed it")
        return cls(name, folder, lock)

    def init(self, field: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of zeros that all owners see; one that is there already must be the same."""
        path = self._path(field)
        note = {"shape": [int(extent) for extent in shape], "dtype": str(dtype).removeprefix("torch.")}
        if note["dtype"] not in _DTYPES:
            raise InputError(f"a shared store holds {', '.join(_DTYPES)}, got {dtype}")
        if not path.with_suffix(".json").exists():
            self._make(path, note)
        noted = self._read_note(field)
        if noted != note:
            raise InputError(f"{field!r} of the shared store {self.name!r} is {noted}, asked for {note}")
        return self.tensor(field)

    def tensor(self, field: str) -> Tensor:
        """Return a tensor that some owner has made."""
        if not self._hold.alive:
            raise InputError(f"the shared store {self.name!r} is closed")
        if field not in self._tensors:
            note, path = self._read_note(field), self._path(field)
            with reading(path):
                self._tensors[field] = _map(path, note["shape"], getattr(torch, note["dtype"]))
        return self._tensors[field]

    def fields(self) -> list[str]:
        """Return the names of the tensors."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def close(self) -> None:
        """Be an owner no more; the last one removes the memory. Tensors in use live on until dropped."""
        self._tensors.clear()
        self._hold()

    def _path(self, field: str) -> Path:
        if not _NAME.fullmatch(field) or field == _LOCK:
            raise InputError(f"the name of a tensor is letters, digits and _.-, got {field!r}")
        return self.folder / f"{field}.bin"

    def _make(self, path: Path, note: dict[str, Any]) -> None:
        """Make a tensor of zeros whole, then show it: of several owners who try, one succeeds."""
        size = _size(note)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        with _told(self.name, size), _only_owner(self.folder, self.name):
            if path.with_suffix(".json").exists():
                return
            handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                if size:
                    os.posix_fallocate(handle, 0, size)  # too little memory is told here, not by a signal
            except OSError:
                os.unlink(fresh)
                raise
            finally:
                os.close(handle)
            os.rename(fresh, path)
            handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with open(handle, "w") as file:
                file.write(json.dumps(note))
            os.rename(fresh, path.with_suffix(".json"))

    def _read_note(self, field: str) -> dict[str, Any]:
        path = self._path(field)
        try:
            note = read_json(path.with_suffix(".json"), _NOTE)
        except FormatError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            known = ", ".join(self.fields()) or "none"
            raise InputError(
                f"no tensor {field!r} in the shared store {self.name!r}; it has: {known}"
            ) from None
        if note["dtype"] not in _DTYPES or _size(note) != path.stat().st_size:
            raise FormatError(f"the shared store {self.name!r}: {field}.json is damaged")
        return dict(note)


def _size(note: Mapping[str, Any]) -> int:
    """Return the bytes of a tensor."""
    return int(math.prod(note["shape"]) * getattr(torch, note["dtype"]).itemsize)


@stores.add("shared")
class SharedStore(Store):
    """Rows of one tensor of a shared store, read and written by all processes that open its name.

    With `x` the store is made and filled; without, it is opened. `init` adds a tensor, `field` opens one that
    another process has added. `aggregate` reduces over edges, each process its share of the destinations.
    A row that one process writes while another reads it may be seen half changed: use a barrier between.
    """

    writable = True
    on_workers: ClassVar[bool] = True

    def __init__(
        self, name: str, x: Any = None, *, field: str = "x", space: SharedSpace | None = None
    ) -> None:
        self.name, self.field_name = name, field
        self.space = space or (SharedSpace.open(name) if x is None else SharedSpace.create(name))
        try:
            if x is not None:
                rows = torch.as_tensor(x).detach()
                self.space.init(field, rows.shape, rows.dtype).copy_(rows)
            self.values = self.space.tensor(field)
        except BaseException:
            if space is None:
                self.space.close()
            raise
        super().__init__(self.values.shape, self.values.dtype)

    @classmethod
    def open(
        cls, rows: FeatureRows, *, store: str, field: str | Mapping[str, Any] | None = None
    ) -> "SharedStore":
        """Return the tensor `field`, "x" unless named, of the shared store `store`; all workers open it."""
        return cls(store, field=rows.option("field", field or "x"))

    def init(self, field: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> "SharedStore":
        """Return a further tensor of this store, of zeros, made if no owner has; `shape` begins with rows."""
        self.space.init(field, shape, dtype)
        return self.field(field)

    def field(self, field: str) -> "SharedStore":
        """Return a further tensor of this store."""
        return SharedStore(self.name, field=field, space=self.space)

    def aggregate(
        self,
        graph: Graph,
        into: "SharedStore",
        reduce: str = "sum",
        *,
        group: Group | None = None,
        share: tuple[int, int] | None = None,
    ) -> None:
        """Write, for each node, the reduced rows of this store over its incoming edges.

        Each process does its share of the destinations, as many edges each: `share` is (place, of how many),
        by default those of `group`, which then waits until all are done.
        """
        number, size = share or ((group.rank, group.size) if group is not None else (0, 1))
        if self.num_rows != graph.num_nodes or into.shape[0] != graph.num_nodes:
            raise GraphError(
                f"the graph has {graph.num_nodes:,} nodes, the stores {self.num_rows:,} and "
                f"{into.shape[0]:,} rows"
            )
        start, stop = share_of(graph.indptr, number, size)
        for first in range(start, stop, _AGGREGATE_ROWS):
            last = min(stop, first + _AGGREGATE_ROWS)
            begin, end = int(graph.indptr[first]), int(graph.indptr[last])
            indptr = graph.indptr[first : last + 1] - begin
            made = kernels.spmm(indptr, graph.indices[begin:end], self.values, reduce=reduce)
            into.values[first:last] = made
        if group is not None:
            group.barrier()

    def close(self) -> None:
        """Be an owner no more; the last one removes the memory."""
        self.space.close()

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"name": self.name, "field": self.field_name}

    def _gather(self, ids: Tensor) -> Tensor:
        return kernels.gather(self.values, ids)

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        put_rows(self.values, ids, rows)


def share_of(indptr: Tensor, share: int, size: int) -> tuple[int, int]:
    """Return the range of destinations of one of `size` shares with about as many edges and rows each."""
    if not 0 <= share < size:
        raise InputError(f"share {share} of {size}: expected 0 … {size - 1}")
    work = indptr + torch.arange(len(indptr))
    wanted = [int(work[-1]) * number // size for number in (share, share + 1)]
    start, stop = torch.searchsorted(work, torch.tensor(wanted)).tolist()
    return start, len(indptr) - 1 if share == size - 1 else stop


def sweep() -> list[str]:
    """Remove this user's stores without a living owner; return their names. Opening any store does it."""
    removed = []
    prefix = f"weft-{os.getuid()}-"
    for folder in [*SHM.glob(f"{prefix}*"), *SHM.glob(f".{prefix}*.partial")]:
        with contextlib.suppress(OSError):
            if folder.name.startswith(".") and process.alive(int(folder.name.rsplit(".", 2)[1])):
                continue
            if folder.lstat().st_uid != os.getuid():
                continue
            if not (folder / _LOCK).exists():
                shutil.rmtree(folder, ignore_errors=True)
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            if _remove_if_free(folder, lock):
                removed.append(folder.name.removeprefix(prefix))
            os.close(lock)
    return removed


def _let_go(folder: Path, lock: int, maker: int) -> None:
    """Give back a hold, and remove what nobody else holds; a forked child leaves that to its parent."""
    if os.getpid() == maker:
        with contextlib.suppress(OSError):
            _remove_if_free(folder, lock)
    os.close(lock)


def _wait_for(handle: int, kind: int, name: str) -> None:
    """Take a lock, or say that its holder does not go on."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise InputError(
                    f"the shared store {name!r} has been locked for {PATIENCE:g} s by a process that makes "
                    "or removes it; end that process, or choose another name"
                ) from None
        time.sleep(0.01)


def _remove_if_free(folder: Path, lock: int) -> bool:
    """Remove a folder whose lock nobody else holds. This process's own hold on it is lost either way."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    if not _same(folder / _LOCK, lock):
        return False  # another process was faster, and the name may be a new store's by now
    grave = folder.with_name(f".{folder.name.lstrip('.')}.{os.getpid()}.partial")
    os.rename(folder, grave)
    shutil.rmtree(grave, ignore_errors=True)
    return True


def _folder(name: str) -> Path:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"the name of a shared store is letters, digits and _.-, got {name!r}")
    if not SHM.is_dir():
        raise InputError(f"this system has no shared memory at {SHM}; use the store 'mmap'")
    folder = SHM / f"weft-{os.getuid()}-{name}"
    if folder.exists() and (
        folder.is_symlink()
        or folder.lstat().st_uid != os.getuid()
        or stat.S_IMODE(folder.lstat().st_mode) & 0o077
    ):
        raise InputError(f"{folder} is not this user's alone; remove it or choose another name")
    return folder


def _same(path: Path, handle: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    here = os.fstat(handle)
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


@contextlib.contextmanager
def _only_owner(folder: Path, name: str) -> Iterator[None]:
    """Keep other owners from making a tensor at the same time; a lock apart from that of the owners."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _wait_for(handle, fcntl.LOCK_EX, name)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _told(name: str, size: int = 0) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        room = shutil.disk_usage(SHM).free
        hint = f"; {size:,} bytes are needed, {SHM} has {room:,}" if error.errno == errno.ENOSPC else ""
        hint += " (in a container give it more, as docker run --shm-size)" if hint else ""
        raise InputError(f"cannot make the shared store {name!r}: {error.strerror}{hint}") from None


def _map(path: Path, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    count = math.prod(shape)
    if not count:
        return torch.empty(tuple(shape), dtype=dtype)
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_size < count * dtype.itemsize:
            raise FormatError(f"{path}: smaller than its note says")
        mapped = mmap.mmap(handle, count * dtype.itemsize)
    finally:
        os.close(handle)
    return torch.frombuffer(mapped, dtype=dtype, count=count).reshape(tuple(shape))
