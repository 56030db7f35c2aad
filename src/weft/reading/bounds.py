"""How many bytes a file may become in memory: those that are free, or as many as the user says."""

import os
from pathlib import Path

from weft.errors import FormatError
from weft.machine import free_memory
from weft.sizes import parse_bytes, shown

LIMIT = "WEFT_READ_LIMIT"
"""The variable by which a user allows more, or less, than the memory that is free."""


def readable_bytes() -> int:
    """Return how many bytes may be read into memory."""
    told = os.environ.get(LIMIT)
    return free_memory() if told is None else parse_bytes(told, LIMIT)


def expect_room(count: int, path: Path, what: str) -> None:
    """Raise where something would become larger than what may be read, before any of it is."""
    room = readable_bytes()
    if count > room:
        raise FormatError(
            f"{path}: {what} would take {shown(count)} of memory, {shown(room)} may be read; if the file is "
            f"what it should be, use a machine with more, or set {LIMIT}={-(-count // 2**20)}MiB"
        )


class CountedStream:
    """A stream that gives no more than may be read: a small file may hold a great deal.

    Where the text becomes a table, each value takes `value_bytes` beside it.
    """

    def __init__(self, stream: object, path: Path, *, value_bytes: int = 0) -> None:
        self._stream, self._path, self._value_bytes = stream, path, value_bytes
        self._taken, self._room = 0, readable_bytes()
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, or raise where there are too many."""
        data: bytes = self._stream.read(size)  # type: ignore[attr-defined]
        self._taken += len(data)
        if self._value_bytes:
            self._taken += self._value_bytes * (data.count(b",") + data.count(b"\n"))
        if self._taken > self._room:
            expect_room(self._taken, self._path, "what it holds, unpacked,")
        return data

    def close(self) -> None:
        """Close the stream that is counted."""
        self.closed = True
        self._stream.close()  # type: ignore[attr-defined]
