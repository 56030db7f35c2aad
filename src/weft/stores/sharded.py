"""Rows owned by ranks: pull and push by all-to-all, as DistDGL's tensors and embeddings.

A call is one of all ranks. Each asks the owners of its ids; how many come from whom is exchanged first, for
unlike a halo the rows of a batch are not known in advance. What one rank asks for twice travels once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import GraphError
from weft.kernels.gather import gather_backward_op
from weft.stores.base import Store, stores
from weft.stores.memory import put_rows
from weft.stores.storage import Storage, decode, encode, row_bytes


class _Route(NamedTuple):
    """How the distinct ids of this rank reach their owners."""

    order: Tensor  # [n] the distinct ids, sorted by owner
    send: list[int]  # of them, to each rank
    receive: list[int]  # ids that each rank asks of this one
    asked: Tensor  # [sum(receive)] local rows that they ask for, in rank order


@stores.add("sharded")
class ShardedStore(Store):
    """Hold the rows of `node_ids` for all ranks of a group, and read anybody's.

    `rows` [n, ...] are this rank's, `node_ids` [n] their ids, ascending; together the ranks hold every id
    from 0 once. Without `node_ids` ranks hold consecutive ranges, in rank order. With `storage` rows lie and
    travel in fewer bits, and are for reading only. `pull` and `push` are the collective calls underneath; see
    `SparseAdam` for rows that are learned.
    """

    collective = True

    def __init__(
        self,
        rows: Tensor,
        *,
        node_ids: Tensor | None = None,
        group: Group | None = None,
        name: str = "rows",
        storage: Storage | None = None,
    ) -> None:
        self.group = group or Group.alone()
        self.label = Label(f"store {name}")
        self.storage, self.writable = storage, storage is None
        self.values, self.scale = encode(rows.detach().contiguous(), storage)
        counts = self._exchange_counts(len(rows))
        total = sum(counts)
        if node_ids is None:
            start = sum(counts[: self.group.rank])
            node_ids = torch.arange(start, start + len(rows))
        self.node_ids = node_ids.to(torch.int64).contiguous()
        self.owner = self._owners(counts, total)
        super().__init__((total, *rows.shape[1:]), rows.dtype, rows.device)

    def most(self, count: int) -> int:
        """Return the largest of a number over the ranks of the group."""
        return int(self.group.all_gather(torch.tensor([count]), label=self.label).wait().max())

    def pull(self, ids: Tensor) -> Tensor:
        """Return the rows of these ids from their owners; all ranks call."""
        distinct, back = self._distinct(ids)
        route = self._route(distinct)
        found = decode(*self._answered(route), self.dtype)
        rows = torch.empty_like(found)
        rows[route.order] = found
        local = int((self.owner[distinct] == self.group.rank).sum())
        self.counters.add(hits=local, bytes=(distinct.numel() - local) * self.row_bytes)
        return kernels.gather(rows, back)

    def push(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Send rows to the owners of their ids; return the local rows written to, ascending, and their sums.

        Rows of one id are added on each rank in the order given, and then in the order of ranks.
        """
        distinct, back = self._distinct(ids)
        summed = _sum_rows(rows, back, distinct.numel())
        route = self._route(distinct)
        arrived = self._move(kernels.gather(summed, route.order), route.send, route.receive)
        touched, place = torch.unique(route.asked, return_inverse=True)
        return touched, _sum_rows(arrived, place, touched.numel())

    def own(self) -> Tensor:
        """Return the rows held here, as anybody reads them; no other rank is asked."""
        return decode(self.values, self.scale, self.dtype)

    @property
    def row_bytes(self) -> int:
        """The bytes that a row is kept in, and travels in."""
        return row_bytes(self.values, self.scale)

    def describe(self) -> dict[str, Any]:
        """Return what the store is, for the record of a run."""
        here = {"ranks": self.group.size, "rows_here": len(self.values), "storage": self.storage}
        return super().describe() | here

    def _gather(self, ids: Tensor) -> Tensor:
        return self.pull(ids)

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows; of an id written several times the last of the last rank stays."""
        flat = rows.to(self.dtype).contiguous()
        latest = torch.arange(ids.numel())
        distinct, back = self._distinct(ids)
        chosen = torch.zeros(distinct.numel(), dtype=torch.int64)
        put_rows(chosen, back, latest)
        route = self._route(distinct)
        arrived = self._move(flat[chosen[route.order]], route.send, route.receive)
        put_rows(self.values, route.asked, arrived)

    def _count(self, rows: int) -> None:
        self.counters.add(rows=rows)

    def _distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        distinct, back = torch.unique(ids, return_inverse=True)
        return distinct, back

    def _route(self, distinct: Tensor) -> _Route:
        owners = self.owner[distinct]
        order = owners.argsort(stable=True)
        send = torch.bincount(owners, minlength=self.group.size)
        ones = [1] * self.group.size
        receive = self.group.all_to_all(send, ones, ones, label=self.label).wait().tolist()
        asked = self._move(distinct[order], send.tolist(), receive)
        return _Route(order, send.tolist(), receive, torch.searchsorted(self.node_ids, asked))

    def _answered(self, route: _Route) -> tuple[Tensor, Tensor | None]:
        """Answer what was asked of this rank, and return the distinct rows that it asked for, as kept."""
        kept = [self.values] if self.scale is None else [self.values, self.scale]
        moved = [self._move(kernels.gather(each, route.asked), route.receive, route.send) for each in kept]
        return moved[0], moved[1] if len(moved) > 1 else None

    def _move(self, rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
        return self.group.all_to_all(rows, send, receive, label=self.label).wait()

    def _exchange_counts(self, count: int) -> list[int]:
        counts: list[int] = self.group.all_gather(torch.tensor([count])).wait().tolist()
        return counts

    def _owners(self, counts: list[int], total: int) -> Tensor:
        """Return the rank of each id; every id must have one."""
        ids = self.group.all_gather(self.node_ids, counts).wait()
        ranks = torch.repeat_interleave(torch.tensor(counts))
        owner = torch.full((total,), -1, dtype=torch.int64)
        if len(self.node_ids) != counts[self.group.rank] or bool((self.node_ids.diff() <= 0).any()):
            raise GraphError("node_ids of a sharded store must be ascending, one for each row held")
        if total and (int(ids.min()) < 0 or int(ids.max()) >= total):
            raise GraphError(
                f"node_ids of a sharded store must be 0 … {total - 1:,}, one for each row there is"
            )
        owner[ids] = ranks
        if bool((owner < 0).any()):
            missing = int((owner < 0).nonzero()[0])
            raise GraphError(f"no rank holds row {missing:,}; together they must hold every row once")
        return owner


def _sum_rows(rows: Tensor, place: Tensor, count: int) -> Tensor:
    """Return the sums of rows with the same place, added in order, [count, ...]."""
    flat = rows.reshape(len(rows), -1)
    summed: Tensor = gather_backward_op(flat.contiguous(), place, count)
    return summed.reshape(count, *rows.shape[1:])
