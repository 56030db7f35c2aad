"""RowSource: what may stand for the features of a graph where they are not a matrix in memory.

A graph holds one as its `x` and hands it on; loaders and inference read the rows that they need through
`gather`. The kinds there are live in `weft.stores`.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError


class NotInMemory(GraphError, AttributeError):
    """Something that only a matrix in memory can do was asked of one that is not."""


class RowSource(ABC):
    """Rows by number: `source.gather(ids)`. It has the shape and the type of the matrix it stands for.

    What needs the matrix itself, as a forward over the whole graph does, is refused in one line.
    """

    shape: torch.Size
    """[num_rows, ...] as a matrix would have it."""
    dtype: torch.dtype
    """Of the rows that `gather` gives."""
    device: torch.device
    """Where `gather` gives them."""

    @abstractmethod
    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of these ids, in their order, [n, ...]."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.shape[0]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Return rows by ids, mask or range, read into memory."""
        if isinstance(index, slice):
            return self.gather(torch.arange(*index.indices(self.shape[0])))
        return self.gather(index.nonzero().flatten() if index.dtype == torch.bool else index)

    def size(self, dim: int) -> int:
        """Return the extent of a dimension."""
        return self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions, as a tensor does."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of values."""
        return self.shape.numel()

    def element_size(self) -> int:
        """Return the bytes of one value, as a tensor does."""
        return self.dtype.itemsize

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        raise _refusal(type(self), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _refusal(cls, getattr(function, "__name__", str(function)))

    def to(self, target: torch.device | torch.dtype | str) -> "RowSource":
        """Return itself: rows are moved and converted when they are read."""
        return self


def _refusal(kind: type, name: str) -> NotInMemory:
    return NotInMemory(
        f"the features lie in a {kind.__name__}, and this needs them in memory ({name}): train on samples "
        "(strategy 'sampled'), or read all of them with graph.with_data(x=graph.x[:])"
    )
