"""Which rows go where: fixed once from the shards, verified by exchanging ids, used for every exchange after.

The owner of a row learns at set-up who reads it. From then on both ends know the counts, so a transfer is
rows and nothing else, and a subset that both ends compute by one rule (`select`) needs no message either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import OTHER, Label
from weft.comm.pending import Pending
from weft.errors import GraphError
from weft.graph.parts.shard import Shard


@dataclass(frozen=True, eq=False)
class HaloPlan:
    """The rows a member sends and gets. `recv_*` stand in the order of arrival: by owning rank, then id."""

    num_rows: int
    """Rows this member owns."""
    send_rows: Tensor
    """[s] int64 own rows, one block per member in member order, each by ascending id."""
    send_ids: Tensor
    """[s] int64 their global ids."""
    send_counts: list[int]
    recv_ids: Tensor
    """[m] int64 global ids of the halo rows."""
    recv_counts: list[int]
    order: Tensor | None
    """[m] int64 the halo row that each arriving row is; None where they arrive in halo order."""

    @staticmethod
    def make(shard: Shard, group: Group, part_rank: Sequence[int] | None = None) -> "HaloPlan":
        """Return the plan of this member's shard; all members call it. `part_rank[p]` is who holds part p."""
        _check_whole(shard, group)
        ranks = torch.tensor(spread(shard.num_parts, group.size) if part_rank is None else part_rank)
        plan = HaloPlan.of(shard.halo_ids, ranks[shard.halo_part.long()], shard.node_ids, group)
        plan._verify(shard, group)
        return plan

    @staticmethod
    def of(
        ids: Tensor, owner: Tensor, node_ids: Tensor, group: Group, *, label: Label | None = None
    ) -> "HaloPlan":
        """Return the plan by which this member gets the rows of distinct ids [m], in their order.

        `owner` [m] is the member that holds each, `node_ids` are those of one's own rows, ascending. All
        members call it, each with ids of its own, or none.
        """
        label = _PLAN if label is None else label
        # Rows are asked for by (owner, id): whichever order a shard lists its halo in, both ends then number
        # the rows of a link alike, and rules over ids (`select`) cut the same ones.
        order = torch.argsort(owner, stable=True)
        order = order[_by_block(owner[order], ids[order])]
        recv_ids = ids[order]
        recv_counts = torch.bincount(owner, minlength=group.size)
        # Counts go first: gloo's all-to-all wants both sides' splits, and only the reader knows its own.
        send_counts = _swap(recv_counts, group, label).tolist()
        send_ids = group.all_to_all(recv_ids, recv_counts.tolist(), send_counts, label=label).wait()
        return HaloPlan(
            num_rows=len(node_ids),
            send_rows=_own_rows(send_ids, send_counts, node_ids, group),
            send_ids=send_ids,
            send_counts=send_counts,
            recv_ids=recv_ids,
            recv_counts=recv_counts.tolist(),
            order=None if torch.equal(order, torch.arange(len(order))) else order,
        )

    @staticmethod
    def everything(node_ids: Tensor, group: Group) -> "HaloPlan":
        """Return the plan by which every member gets all rows of all others: a gather; all members call it.

        `node_ids` are the ids of one's own rows. The halo has the rows of one member after the other.
        """
        ids, counts = group.gather_unequal(node_ids, label=_PLAN)
        held = torch.split(ids, counts)
        others = [member for member in range(group.size) if member != group.rank]
        return HaloPlan(
            num_rows=len(node_ids),
            send_rows=torch.arange(len(node_ids)).repeat(len(others)),
            send_ids=node_ids.repeat(len(others)),
            send_counts=[len(node_ids) if member in others else 0 for member in range(group.size)],
            recv_ids=torch.cat([node_ids[:0], *(held[member] for member in others)]),
            recv_counts=[counts[member] if member in others else 0 for member in range(group.size)],
            order=None,
        )

    def reversed(self) -> "HaloPlan":
        """Return the plan of the way back: halo rows are sent home, and arrive one a reader, unsummed.

        What is own here is the halo there, in halo order; what arrives stands in the order of `send_rows`.
        """
        return HaloPlan(
            num_rows=self.num_halo,
            send_rows=torch.arange(self.num_halo) if self.order is None else self.order,
            send_ids=self.recv_ids,
            send_counts=self.recv_counts,
            recv_ids=self.send_ids,
            recv_counts=self.send_counts,
            order=None,
        )

    def to(self, device: torch.device) -> "HaloPlan":
        """Return the plan for rows that lie on a device."""
        return replace(
            self,
            send_rows=self.send_rows.to(device),
            send_ids=self.send_ids.to(device),
            recv_ids=self.recv_ids.to(device),
            order=None if self.order is None else self.order.to(device),
        )

    @property
    def num_halo(self) -> int:
        """Rows this member gets."""
        return len(self.recv_ids)

    @cached_property
    def halo_ids(self) -> Tensor:
        """[m] int64 global ids in halo order, as `pull` returns the rows."""
        return placed(self.recv_ids, self.order)

    def select(self, halo: Tensor, sent: Tensor) -> "HaloPlan":
        """Return the plan of some rows: masks of halo rows [m], in halo order, and of sent rows [s].

        Both ends must compute them from the ids by one rule: a row is kept at both or at neither.
        """
        arriving = halo if self.order is None else halo[self.order]
        place = halo.cumsum(0) - 1  # of a kept halo row among the kept ones
        return HaloPlan(
            num_rows=self.num_rows,
            send_rows=self.send_rows[sent],
            send_ids=self.send_ids[sent],
            send_counts=_counts(sent, self.send_counts),
            recv_ids=self.recv_ids[arriving],
            recv_counts=_counts(arriving, self.recv_counts),
            order=None if self.order is None else place[self.order[arriving]],
        )

    def pull(self, group: Group, rows: Tensor, *, background: bool = False, label: Label = OTHER) -> Pending:
        """Get the halo rows [m, ...], in halo order, from their owners; `rows` are one's own [n, ...]."""
        # A copy, also where every row is sent: the caller may change `rows` while these are under way.
        sent = rows.detach()[self.send_rows]
        moved = group.all_to_all(sent, self.send_counts, self.recv_counts, background=background, label=label)
        return moved.then(lambda received: placed(received, self.order))

    def sum_at_owner(self, received: Tensor) -> Tensor:
        """Return [n, ...] from rows [s, ...] in the order of `send_rows`; sums run in member order."""
        total = received.new_zeros(self.num_rows, *received.shape[1:])
        rows, indptr, indices = self._readers
        if not len(rows) or not total.numel():
            return total
        # Numbers of one row are added in member order, by CSR: index_add_ on a GPU adds in any order, and two
        # runs would differ in their last bits. Whole numbers have no last bits.
        if not received.is_floating_point():
            return total.index_add_(0, self.send_rows, received)
        flat = received.reshape(len(received), -1)
        with torch.no_grad():
            total[rows] = kernels.spmm(indptr, indices, flat).reshape(len(rows), *received.shape[1:])
        return total

    @cached_property
    def _readers(self) -> tuple[Tensor, Tensor, Tensor]:
        """The rows that are sent at all, and for each the places in `send_rows` where it stands, as CSR."""
        ordered, places = torch.sort(self.send_rows, stable=True)
        rows, counts = torch.unique_consecutive(ordered, return_counts=True)
        return rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), places

    def _verify(self, shard: Shard, group: Group) -> None:
        """Send the ids of the own rows the way all rows will go, and compare what arrives with the halo."""
        # A wrong plan would train on the rows of other nodes and still converge to something: it is found
        # here, once, by sending ids in place of rows.
        arrived = self.pull(group, shard.node_ids, label=_PLAN).wait()
        wrong = (arrived != shard.halo_ids).nonzero().flatten()
        if len(wrong):
            first = int(wrong[0])
            raise GraphError(
                f"rank {group.ranks[group.rank]} was to get node {int(shard.halo_ids[first])} as halo row "
                f"{first}, but {int(arrived[first])} came; the shards are of different partitions"
            )


_PLAN = Label("plan")


def placed(received: Tensor, places: Tensor | None) -> Tensor:
    """Return rows in their order: row i of what was received is row places[i]; None: it is in order."""
    if places is None:
        return received
    rows = torch.empty_like(received)
    rows[places] = received
    return rows


def spread(num_parts: int, size: int) -> list[int]:
    """Return the rank that holds each part: contiguous runs, as equal as can be."""
    if num_parts < size:
        raise GraphError(
            f"{num_parts} parts cannot occupy {size} workers; use at most {num_parts} workers or more parts"
        )
    return [part * size // num_parts for part in range(num_parts)]


def _check_whole(shard: Shard, group: Group) -> None:
    """Refuse ranks that together do not hold every node once, on all of them alike."""
    held = int(group.all_reduce(torch.tensor(len(shard.node_ids)), label=_PLAN).wait())
    if shard.cuts == "nodes" and held != shard.num_nodes:
        raise GraphError(
            f"the ranks hold {held} nodes together, the graph has {shard.num_nodes}; the shards are of "
            "different partitions, or a part is missing or held twice"
        )


def _by_block(block: Tensor, ids: Tensor) -> Tensor:
    """Return the order by (block, id) of rows whose blocks ascend already."""
    by_id = torch.argsort(ids, stable=True)
    return by_id[torch.argsort(block[by_id], stable=True)]


def _swap(counts: Tensor, group: Group, label: Label) -> Tensor:
    """Return how many rows each member wants of this one: one number per pair, so the splits are known."""
    ones = [1] * group.size
    return group.all_to_all(counts, ones, ones, label=label).wait()


def _own_rows(ids: Tensor, counts: list[int], own: Tensor, group: Group) -> Tensor:
    """Return the own row of each asked id; refuse to answer for a node that is not held here."""
    rows = torch.searchsorted(own, ids)
    held = rows < len(own)
    held &= own[rows.clamp(max=len(own) - 1)] == ids if len(own) else held
    if not bool(held.all()):
        first = int((~held).nonzero()[0])
        asks = group.ranks[int(torch.searchsorted(torch.tensor(counts).cumsum(0), first, right=True))]
        raise GraphError(
            f"rank {asks} asks rank {group.ranks[group.rank]} for node {int(ids[first])}, which is not "
            "there; the shards are of different partitions, or the ranks map parts differently"
        )
    return rows


def _counts(mask: Tensor, counts: list[int]) -> list[int]:
    """Return how many of each block a mask keeps."""
    running = torch.cat([torch.zeros(1, dtype=torch.int64), mask.long().cumsum(0)])
    ends = torch.tensor([0, *counts]).cumsum(0)
    kept: list[int] = running[ends].diff().tolist()
    return kept
