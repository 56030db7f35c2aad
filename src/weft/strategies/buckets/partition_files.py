"""Partitions as files: learned rows and their accumulators, one file for each version of a partition.

A version is the number of visits of the run after which it was written; 0 is no file: first rows are drawn.
A file appears whole, under its own name, and is never written again, so the versions that a checkpoint names
are there until the next one is: a run that is killed at any moment goes on from them, bit for bit.
"""

import errno
import os
from collections.abc import Iterable
from io import RawIOBase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from weft.draw import Stream, draw, fold
from weft.errors import FormatError, TrainingError
from weft.placing import sync_directory
from weft.reading.mapped import map_values
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.training import PartitionRows

_PIECE = 1 << 20
"""Numbers that are drawn or written at a time."""


class PartitionFiles:
    """The versions of every partition in a folder: rows [n, width], then an accumulator for each.

    A version that a newer one follows is removed, unless it is `pinned`.
    """

    def __init__(
        self,
        folder: Path,
        division: Division,
        width: int,
        *,
        seed: int = 0,
        scale: float = 1e-3,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.folder, self.division, self.width = folder, division, width
        self.dtype, self._seed, self._scale = dtype, seed, scale
        self.bytes_read = self.bytes_written = 0
        self.pinned: set[tuple[int, int]] = set()
        """(partition, version) that a checkpoint or the best epoch has."""
        self._unsynced: set[Path] = set()

    def path(self, partition: int, version: int) -> Path:
        """Return the file of a version."""
        return self.folder / f"partition-{partition:05d}.{version:09d}.rows"

    def empty(self, partition: int) -> PartitionRows:
        """Return room for a partition."""
        size = self.division.size(partition)
        return PartitionRows(
            torch.empty(size, self.width, dtype=self.dtype), torch.empty(size, dtype=self.dtype)
        )

    def read(self, partition: int, version: int, into: PartitionRows) -> None:
        """Fill rows with those of a version."""
        if version == 0:
            self._draw(partition, into)
            return
        path = self.path(partition, version)
        try:
            with open(path, "rb", buffering=0) as file:
                whole = sum(_fill(file, part) for part in (into.values, into.total))
                more = file.read(1)
        except OSError as error:
            raise FormatError(f"cannot read {path}: {error.strerror}; {_WAY_OUT}") from None
        expected = into.values.nbytes + into.total.nbytes
        self._check_size(path, expected, path.stat().st_size if more else whole)
        self.bytes_read += expected

    def write(self, partition: int, version: int, rows: PartitionRows) -> None:
        """Write a version, which is there when this returns, or say why it cannot be."""
        path = self.path(partition, version)
        partial = path.with_suffix(".partial")
        try:
            with open(partial, "wb", buffering=0) as file:
                for part in (rows.values, rows.total):
                    _pour(file, part)
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            remedy = "free some space" if error.errno == errno.ENOSPC else "see to the folder"
            raise TrainingError(
                f"cannot write partition {partition} to {path}: {error.strerror}; {remedy} and continue with "
                "--resume"
            ) from None
        self._unsynced.add(path)
        self.bytes_written += rows.values.nbytes + rows.total.nbytes
        self._remove(f"partition-{partition:05d}.*", {path.name})

    def map(self, partition: int, version: int) -> Tensor:
        """Return the rows of a version, [n, width], mapped: read where they are touched."""
        path, shape = self.path(partition, version), (self.division.size(partition), self.width)
        dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
        try:
            self._check_size(path, (shape[0] * shape[1] + shape[0]) * dtype.itemsize, path.stat().st_size)
            return torch.from_numpy(map_values(path, dtype, shape))
        except OSError as error:
            raise FormatError(f"cannot read {path}: {error.strerror}; {_WAY_OUT}") from None

    def sync(self) -> None:
        """Have all that was written reach the disk."""
        for path in sorted(self._unsynced):
            if path.exists():
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        if self._unsynced:
            sync_directory(self.folder)
        self._unsynced.clear()

    def tidy(self, versions: Iterable[int]) -> None:
        """Remove what is neither a last version, one a partition, nor pinned: what a killed run left."""
        self._remove("partition-*", {self.path(*each).name for each in enumerate(versions)})

    def _remove(self, pattern: str, kept: set[str]) -> None:
        kept = kept | {self.path(*each).name for each in self.pinned}
        for path in self.folder.glob(pattern):
            if path.name not in kept:
                path.unlink(missing_ok=True)
                self._unsynced.discard(path)

    def _check_size(self, path: Path, expected: int, found: int) -> None:
        if found != expected:
            raise FormatError(f"{path}: expected {expected:,} bytes, found {found:,}; {_WAY_OUT}")

    def _draw(self, partition: int, into: PartitionRows) -> None:
        """Fill rows with uniform numbers of standard deviation `scale`, by seed and node alone."""
        ids, key = self.division.ids(partition), fold(self._seed, Stream.ROWS)
        lanes, count = np.arange(self.width), max(1, _PIECE // self.width)
        for first in range(0, len(ids), count):
            bits = draw(key, ids[first : first + count, None], lanes)
            drawn = torch.from_numpy((bits.astype(np.float64) + 0.5) * 2.0**-31 - 1.0)
            into.values[first : first + count] = drawn * (self._scale * 3.0**0.5)
        into.total.zero_()


_WAY_OUT = "restore the run's folder from a copy, or start anew with another --out (in Python: out=)"


def _fill(file: RawIOBase, part: Tensor) -> int:
    """Read a tensor from a file; return how many bytes there were."""
    view, done = _bytes(part), 0
    while done < len(view) and (count := file.readinto(view[done:])):
        done += count
    return done


def _pour(file: RawIOBase, part: Tensor) -> None:
    """Write a tensor to a file."""
    view, done = _bytes(part), 0
    while done < len(view):
        done += file.write(view[done : done + (_PIECE << 3)]) or 0


def _bytes(part: Tensor) -> memoryview:
    return part.view(-1).view(torch.uint8).numpy().data
