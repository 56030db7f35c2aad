"""How a folder takes its place in one step, and what becomes of folders whose writers were killed."""

import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from weft import process
from weft.errors import FormatError

PARTIAL = ".partial"
"""How the name of a folder ends that is being written."""
_OLD = ".old" + PARTIAL


def move_into_place(partial: Path, target: Path) -> None:
    """Rename a folder to the target, in the place of the one that is there."""
    if not os.path.lexists(target):
        os.rename(partial, target)
    else:
        # A folder that is not empty cannot be renamed over: the old one steps aside first and is then
        # removed.
        old = partial.with_name(partial.name.removesuffix(PARTIAL) + _OLD)
        os.rename(target, old)
        try:
            os.rename(partial, target)
        except BaseException:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync_directory(target.parent)


def writer_tag() -> str:
    """Return what names the process that writes a folder, by which others see whether it still does."""
    return f"{socket.gethostname()}-{os.getpid()}"


def tidy_after_killed_writers(target: Path) -> None:
    """Remove what killed writers of this target left on this machine, or put the old folder back."""
    prefix = f".{target.name}.{socket.gethostname()}-"
    for leftover in target.parent.glob(f".{_escape(target.name)}.*{PARTIAL}"):
        writer = leftover.name.removeprefix(prefix).partition(".")[0]
        if leftover.name.startswith(prefix) and writer.isdigit() and not process.alive(int(writer)):
            if leftover.name.endswith(_OLD) and not os.path.lexists(target):
                os.rename(leftover, target)  # killed between the two renames of an overwrite
            else:
                shutil.rmtree(leftover, ignore_errors=True)


def work_folder(path: Path) -> None:
    """Make a folder for what is not done yet, or take the one that this user left; refuse any other's.

    Its name is known before: where everybody may write (`/tmp`), somebody else could have made it, with
    links to files of this user's, or with results that are taken for its own.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        # Owners are compared with that of a new folder: some file systems have names of their own for them.
        fresh = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
        try:
            own = fresh.lstat().st_uid
        finally:
            fresh.rmdir()
        there = path.lstat()
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != own:
            raise FormatError(
                f"{path} is a link or another user's, and work is kept there; remove it, or write elsewhere"
            ) from None


def sync_directory(path: Path) -> None:
    """Have the names in a folder reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
