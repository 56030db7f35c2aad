"""Rows in memory: of this process, or of all ranks of a group, each of which owns some.

A call on rows that ranks own is one of all ranks. Each asks the owners of its ids; how many come from whom is
exchanged first, for unlike a halo the rows of a batch are not known in advance. What one rank asks for twice
travels once. This is how DistDGL's tensors and embeddings lie.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.comm.rows import GatheredRows, owners
from weft.errors import GraphError
from weft.kernels.gather import gather_backward_op
from weft.stores.base import FeatureRows, Store, stores
from weft.stores.storage import Storage, decode, encode, row_bytes


@stores.add("memory")
class MemoryStore(Store):
    """Keep rows in memory, those of this process or all ranks' of a group, in fewer bits with `storage`.

    With a group of several ranks `x` [n, ...] are this one's rows and `node_ids` [n] their ids, ascending;
    together the ranks hold every id from 0 once. Without `node_ids` they hold consecutive ranges, in rank
    order. `push` sends gradients to the owners: see `SparseAdam` for rows that are learned. `dtype` is what
    rows are given in, where it is not that of x.

    >>> store = MemoryStore(torch.tensor([[1.0, -2.0], [0.0, 0.5]]), storage="int8")
    >>> store.gather(torch.tensor([1, 0]))[:, 1].tolist(), store.row_bytes
    ([0.5, -2.0], 6)
    """

    writable = True
    on_workers: ClassVar[bool] = True
    over_stores: ClassVar[bool] = True

    def __init__(
        self,
        x: Any,
        *,
        storage: Storage | None = None,
        node_ids: Tensor | None = None,
        group: Group | None = None,
        label: str = "rows",
        dtype: torch.dtype | None = None,
    ) -> None:
        x = torch.as_tensor(x).detach()
        x = x if x.is_floating_point() else x.float()
        self.group = group or Group.alone()
        self.label, self.storage = Label(f"store {label}"), storage
        self.collective = self.group.size > 1
        self.values, self.scale = encode(x.contiguous(), storage)
        counts = [len(x)]
        if self.collective:
            counts = self.group.all_gather(torch.tensor(counts), label=self.label).wait().tolist()
        # One process needs no table of owners: that would be four bytes for each node of the graph.
        self._rows = self._owned(node_ids, counts) if self.collective or node_ids is not None else None
        kind = x.dtype if dtype is None else dtype
        super().__init__((sum(counts), *x.shape[1:]), kind, x.device)

    @classmethod
    def open(cls, rows: FeatureRows, *, storage: Storage | None = None) -> "MemoryStore":
        """Return the store of the graph's own x, in the bits of `storage`; each worker has its rows."""
        if isinstance(rows.x, MemoryStore) and storage is None and rows.group.size == 1:
            return rows.x
        options: dict[str, Any] = (
            {"node_ids": rows.node_ids, "group": rows.group} if rows.group.size > 1 else {}
        )
        return cls(rows.dense(), storage=storage, label="features", **options)

    @classmethod
    def as_read(cls, x: Tensor, *, storage: Storage | None = None) -> Tensor:
        """Return rows as the store gives them: rounded to the bits of `storage`."""
        return decode(*encode(x, storage), x.dtype)

    @property
    def local_ids(self) -> Tensor | None:
        """The ids that this rank owns; None where there is one process."""
        return None if self._rows is None or not self.collective else self._rows.node_ids

    @property
    def row_bytes(self) -> int:
        """The bytes that a row is kept in, and travels in."""
        return row_bytes(self.values, self.scale)

    def most(self, count: int) -> int:
        """Return the largest of a number over the ranks of the group."""
        return int(self.group.all_gather(torch.tensor([count]), label=self.label).wait().max())

    def push(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Send rows to the owners of their ids; return the local rows written to, ascending, and their sums.

        Rows of one id are added on each rank in the order given, and then in the order of ranks.
        """
        if self._rows is None:
            ids = ids.to(rows.device)
            if not len(ids) or bool((ids.diff() > 0).all()):
                return ids, rows  # each once already
            touched, places = torch.unique(ids, return_inverse=True)
            return touched, _sum_rows(rows, places, len(touched))
        plan = self._rows.plan(ids)
        summed = _sum_rows(rows, plan.places, plan.travel.num_halo)
        touched, places = torch.unique(plan.travel.send_rows, return_inverse=True)
        return touched, _sum_rows(self._sent_home(plan.travel, summed), places, len(touched))

    def describe(self) -> dict[str, Any]:
        ranks = {"ranks": self.group.size, "rows_here": len(self.values)} if self.collective else {}
        return super().describe() | ranks | {"storage": self.storage}

    def _gather(self, ids: Tensor) -> Tensor:
        if self._rows is None:
            ids = ids.to(self.device)
            scale = None if self.scale is None else self.scale[ids]
            return decode(kernels.gather(self.values, ids), scale, self.dtype)
        plan = self._rows.plan(ids)
        kept = [self.values] if self.scale is None else [self.values, self.scale]
        moved = [plan.travel.pull(self.group, each, label=self.label).wait() for each in kept]
        local = plan.travel.recv_counts[self.group.rank]
        self.counters.add(hits=local, bytes=(plan.travel.num_halo - local) * self.row_bytes)
        rows = decode(moved[0], moved[1] if len(moved) > 1 else None, self.dtype)
        return kernels.gather(rows, plan.places)

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows; of an id written several times the last of the last rank stays."""
        if self._rows is not None:
            plan = self._rows.plan(ids)
            latest = rows.new_empty((plan.travel.num_halo, *rows.shape[1:]))
            put_rows(latest, plan.places, rows)
            ids, rows = plan.travel.send_rows, self._sent_home(plan.travel, latest)
        kept = encode(rows.to(self.device, self.dtype), self.storage)
        put_rows(self.values, ids.to(self.device), kept.values)
        if self.scale is not None and kept.scale is not None:
            put_rows(self.scale, ids.to(self.device), kept.scale)

    def _count(self, rows: int) -> None:
        # Of rows that ranks own, `_gather` knows which ones travelled.
        self.counters.add(rows=rows, bytes=0 if self._rows is not None else rows * self.row_bytes)

    def _sent_home(self, travel: HaloPlan, rows: Tensor) -> Tensor:
        """Return the rows [s, ...] that readers have for this rank's own, in the order of `send_rows`."""
        return travel.reversed().pull(self.group, rows, label=self.label).wait()

    def _owned(self, node_ids: Tensor | None, counts: list[int]) -> GatheredRows:
        """Return what brings rows of others; every id must have an owner."""
        rank, total = self.group.rank, sum(counts)
        if node_ids is None:
            start = sum(counts[:rank])
            node_ids = torch.arange(start, start + counts[rank])
        ids = node_ids.to(torch.int64).contiguous()
        if len(ids) != counts[rank] or bool((ids.diff() <= 0).any()):
            raise GraphError("node_ids of a store must be ascending, one for each row held")
        if len(ids) and (int(ids[0]) < 0 or int(ids[-1]) >= total):
            raise GraphError(f"node_ids of a store must be 0 … {total - 1:,}, one for each row there is")
        owner = owners(ids, total, self.group, label=self.label)
        if bool((owner < 0).any()):
            missing = int((owner < 0).nonzero()[0])
            raise GraphError(f"no rank holds row {missing:,}; together they must hold every row once")
        return GatheredRows(self.group, ids, owner=owner, label=self.label)


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


def _sum_rows(rows: Tensor, places: Tensor, count: int) -> Tensor:
    """Return the sums of rows with the same place, added in order, [count, ...]."""
    flat = rows.reshape(len(rows), rows.shape[1:].numel())  # no -1: there may be no rows
    summed: Tensor = gather_backward_op(flat.contiguous(), places, count)
    return summed.reshape(count, *rows.shape[1:])
