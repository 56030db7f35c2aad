"""Where the arrays of a shard come together, some rows at a time: in memory, or in the files of its folder.

Who cuts a graph hands on rows as they come, so that a part that is written is never in memory.
"""

from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from weft import format
from weft.graph.files import as_array, as_tensor


class GrowingArray(Protocol):
    """An array that is being made."""

    def append(self, rows: Tensor) -> None:
        """Take the next rows."""

    def close(self) -> Tensor:
        """Return the array; all its rows were given."""


class Gathering(Protocol):
    """Makes arrays of a known type and shape."""

    def array(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> GrowingArray:
        """Return an array to be filled; names are those of files."""


class InMemory:
    """Arrays in memory."""

    def array(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> GrowingArray:
        """Return an array to be filled."""
        return _Filled(torch.empty(shape, dtype=dtype))


class _Filled:
    def __init__(self, values: Tensor) -> None:
        self.values, self.done = values, 0

    def append(self, rows: Tensor) -> None:
        self.values[self.done : self.done + len(rows)] = rows
        self.done += len(rows)

    def close(self) -> Tensor:
        assert self.done == len(self.values), f"{self.done} rows of {len(self.values)}"
        return self.values


class InFolder:
    """Arrays in files of a folder, mapped once they are written; `entries` are their lines of a manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, dict[str, Any]] = {}

    def array(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> GrowingArray:
        """Return an array to be filled."""
        return _Written(self, name, dtype, shape)

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Write an array that is all there, unless it was made here."""
        if name not in self.entries:
            file = format.ArrayFile(self.folder / f"{name}.npy", array.dtype, array.shape)
            file.append(array)
            self.entries[name] = file.close()


class _Written:
    def __init__(self, place: InFolder, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.place, self.name, self.dtype = place, name, dtype
        kept = as_array(torch.empty(0, dtype=dtype)).dtype
        self.file = format.ArrayFile(place.folder / f"{name}.npy", kept, shape)

    def append(self, rows: Tensor) -> None:
        self.file.append(as_array(rows))

    def close(self) -> Tensor:
        entry = self.place.entries[self.name] = self.file.close()
        array = format.read_array(self.place.folder, self.name, entry)
        return as_tensor(array, str(self.dtype).removeprefix("torch."))
