"""Temporary folders that do not outlive their owners: the next one removes what a killed one has left."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HELD = ".held"
"""How the name of such a folder ends: a lock on it, which goes with its owner, tells whether it is in use."""


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Give a temporary folder that no other user may read, removed in the end.

    Folders of the same prefix whose owners were killed, with all that might have removed them, are removed
    before.
    """
    sweep(prefix)
    folder, lock = _made(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(prefix: str) -> None:
    """Remove the folders of this user, of one prefix, whose owners are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*{HELD}"):
        with suppress(OSError):  # another process was faster, or nothing can be told of locks there
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                lock = _lock(folder)
                try:
                    shutil.rmtree(folder)
                finally:
                    os.close(lock)


def _made(prefix: str) -> tuple[Path, int]:
    """Return a new folder and the descriptor of its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=HELD))
        try:
            lock = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process took it, before it was locked, for one that was left
        except OSError:
            return folder, os.open(folder, os.O_RDONLY | os.O_CLOEXEC)  # no locks there, and none is swept
        if folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int:
    """Return the descriptor of a folder's lock, or raise `BlockingIOError` where another process holds it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
