"""How a folder takes its place in one step, and what becomes of folders whose writers were killed."""

import os
import shutil
import socket
from pathlib import Path

from weft import process

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


def sync_directory(path: Path) -> None:
    """Have the names in a folder reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
