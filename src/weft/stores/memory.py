"""Rows in this process's memory."""

from typing import Any

import torch
from torch import Tensor

from weft import kernels
from weft.stores.base import Store, stores
from weft.stores.storage import Storage, decode, encode, row_bytes


@stores.add("memory")
class MemoryStore(Store):
    """Keep rows in memory, in fewer bits where `storage` says so.

    >>> store = MemoryStore(torch.tensor([[1.0, -2.0], [0.0, 0.5]]), storage="int8")
    >>> store.gather(torch.tensor([1, 0]))[:, 1].tolist(), store.row_bytes
    ([0.5, -2.0], 6)
    """

    writable = True

    def __init__(self, x: Any, *, storage: Storage | None = None) -> None:
        x = torch.as_tensor(x).detach()
        x = x if x.is_floating_point() else x.float()
        super().__init__(x.shape, x.dtype, x.device)
        self.storage = storage
        self.values, self.scale = encode(x.contiguous(), storage)

    @property
    def row_bytes(self) -> int:
        """The bytes that a row is kept in."""
        return row_bytes(self.values, self.scale)

    def _gather(self, ids: Tensor) -> Tensor:
        ids = ids.to(self.device)
        scale = None if self.scale is None else self.scale[ids]
        return decode(kernels.gather(self.values, ids), scale, self.dtype)

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        kept = encode(rows.to(self.device), self.storage)
        put_rows(self.values, ids.to(self.device), kept.values)
        if self.scale is not None and kept.scale is not None:
            put_rows(self.scale, ids.to(self.device), kept.scale)


def put_rows(into: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Write into[ids] = rows; of an id given twice the last row stays, whatever the number of threads."""
    rows = rows.to(into.dtype)
    if not ids.numel():
        return
    steps = ids.diff()
    if bool((steps == 1).all()):
        into[int(ids[0]) : int(ids[-1]) + 1] = rows
        return
    if bool((steps > 0).all()):
        into[ids] = rows
        return
    order = ids.argsort(stable=True)
    last = torch.ones_like(ids, dtype=torch.bool)
    last[:-1] = ids[order][1:] != ids[order][:-1]
    chosen = order[last]
    into[ids[chosen]] = rows[chosen]
