"""Columns owned by ranks, as P3: every rank has a slice of every row."""

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import GraphError
from weft.stores.base import Store, stores


@stores.add("sliced")
class SlicedStore(Store):
    """Hold some columns of all rows; `own` gives them without traffic, `gather` whole rows from all ranks.

    `columns` [N, w] are this rank's: `slice_bounds(width, size)` says which.
    """

    collective = True
    by_recipe: ClassVar[bool] = False

    def __init__(self, columns: Tensor, *, width: int, group: Group | None = None) -> None:
        self.group = group or Group.alone()
        self.label = Label("store slices")
        self.bounds = slice_bounds(width, self.group.size)
        rank = self.group.rank
        expected = self.bounds[rank + 1] - self.bounds[rank]
        if columns.dim() != 2 or columns.shape[1] != expected:
            raise GraphError(f"rank {rank} holds {expected} of {width} columns, got {list(columns.shape)}")
        super().__init__((len(columns), width), columns.dtype, columns.device)
        self.values = columns.detach().contiguous()

    @classmethod
    def of_rows(
        cls, rows: Tensor, *, node_ids: Tensor, num_rows: int, group: Group | None = None
    ) -> "SlicedStore":
        """Return the store of a matrix of which each rank holds the rows `node_ids` [n]; columns move."""
        group = group or Group.alone()
        label, bounds = Label("store slices"), slice_bounds(rows.shape[1], group.size)
        ids, counts = group.gather_unequal(node_ids, label=label)
        pieces = [rows[:, start:stop].flatten() for start, stop in pairwise(bounds)]
        width = bounds[group.rank + 1] - bounds[group.rank]
        sizes = [len(piece) for piece in pieces]
        moved = group.all_to_all(torch.cat(pieces), sizes, [n * width for n in counts], label=label).wait()
        columns = rows.new_empty(num_rows, width)
        columns[ids] = moved.reshape(-1, width)
        return cls(columns, width=rows.shape[1], group=group)

    @property
    def columns(self) -> slice:
        """The columns of this rank."""
        return slice(self.bounds[self.group.rank], self.bounds[self.group.rank + 1])

    def most(self, count: int) -> int:
        """Return the largest of a number over the ranks of the group."""
        return int(self.group.all_gather(torch.tensor([count]), label=self.label).wait().max())

    def own(self, ids: Tensor) -> Tensor:
        """Return this rank's columns of these rows; no other rank is asked."""
        return kernels.gather(self.values, self.checked(ids))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"ranks": self.group.size}

    def _gather(self, ids: Tensor) -> Tensor:
        me, size = self.group.rank, self.group.size
        send = [0 if rank == me else ids.numel() for rank in range(size)]
        asked, counts = self._ask(ids, send)
        out = torch.empty((ids.numel(), self.shape[1]), dtype=self.dtype, device=self.device)
        out[:, self.columns] = kernels.gather(self.values, ids)
        # Slices differ in width by a column: values travel as one flat row of numbers.
        # The ids that were asked, not one's own: every rank answers for its columns of all rows that others
        # want.
        mine = kernels.gather(self.values, asked).flatten()
        widths = [self.bounds[rank + 1] - self.bounds[rank] for rank in range(size)]
        outgoing = [count * widths[me] for count in counts]
        incoming = [count * width for count, width in zip(send, widths)]
        flat = self.group.all_to_all(mine, outgoing, incoming, label=self.label).wait()
        for rank, piece in enumerate(torch.split(flat, incoming)):
            if send[rank]:
                out[:, self.bounds[rank] : self.bounds[rank + 1]] = piece.reshape(-1, widths[rank])
        self.counters.add(bytes=ids.numel() * (self.shape[1] - widths[me]) * self.dtype.itemsize)
        return out

    def _count(self, rows: int) -> None:
        self.counters.add(rows=rows, hits=rows if self.group.size == 1 else 0)

    def _ask(self, ids: Tensor, send: list[int]) -> tuple[Tensor, list[int]]:
        """Return the ids that others ask of this rank, in rank order, and how many each asks."""
        ones = [1] * self.group.size
        counts = self.group.all_to_all(torch.tensor(send), ones, ones, label=self.label).wait().tolist()
        copies = torch.cat([ids[:count] for count in send])
        return self.group.all_to_all(copies, send, counts, label=self.label).wait(), counts


def slice_bounds(width: int, size: int) -> list[int]:
    """Return the first column of each rank and, last, the width: as even as whole columns can be."""
    return [width * rank // size for rank in range(size + 1)]
