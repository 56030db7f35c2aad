"""One owner of a run's folder: a lock that goes with the process that holds it, however that ends."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from weft.comm.failure import launched
from weft.errors import InputError

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextmanager
def claimed(path: str | Path | None) -> Iterator[None]:
    """Hold the folder of a run, made where it is missing, or refuse in one line where another run holds it.

    Claims nest. A worker that weft started claims nothing: the process that started it does. Folders that
    were made here and are empty in the end are removed.
    """
    folder = None if path is None else Path(path).absolute()
    if folder is None or launched() or folder in _held.get() or (folder.exists() and not folder.is_dir()):
        yield
        return
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        lock = _lock(folder)
    except OSError as error:
        what = "write into" if folder.is_dir() else "create"
        raise InputError(f"cannot {what} the run folder {path}: {error.strerror}") from None
    before = _held.set(_held.get() | {folder})
    try:
        yield
    finally:
        _held.reset(before)
        # While it is still held: who has opened this file meanwhile sees that it is gone, and tries again.
        (folder / LOCK).unlink(missing_ok=True)
        os.close(lock)
        with suppress(OSError):  # not empty: a run is there
            for each in made:
                each.rmdir()


def is_claimed(folder: Path) -> bool:
    """Return whether a process that lives holds the folder of a run; one that was killed leaves its file."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return error.errno in _UNSUPPORTED  # nothing can be told there, and the file is there
    finally:
        os.close(lock)
    return False


def _lock(folder: Path) -> int:
    """Return the descriptor of the folder's lock; the lock goes with it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(lock, 20, 0).decode(errors="replace").strip()
            if error.errno in _UNSUPPORTED:
                return lock  # nothing can be told there, and a run is worth more than its lock
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise
            raise InputError(
                f"{folder} is in use: {f'process {owner}' if owner else 'another process'} trains in it; "
                "wait for it or stop it, or choose another folder"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(folder / LOCK)):
                with suppress(OSError):  # a full disk: only who holds it cannot be told
                    os.truncate(lock, 0)
                    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
                return lock
        os.close(lock)  # its owner removed it at that moment
