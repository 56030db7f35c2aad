"""The edges of a shard by the part that their sources are in, and the way to the rows of each part.

In every round each rank sends to one rank and gets from one: first from the rank before it, then from the one
before that, and part by part where a rank holds several. All ranks make the same number of rounds, also where
there is nothing to fetch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan, spread
from weft.exchanges.base import Arrival, Exchange, Options, make_exchange
from weft.graph.message.block import Block
from weft.graph.parts.shard import Shard
from weft.graph.reductions.row_sums import add_at

TRAINING = "halo"
"""What the ledger calls rows that the exchange brings; all other kinds of traffic are exact."""


@dataclass(frozen=True, eq=False)
class Round:
    """The way to the halo rows of one remote part: what arrives in its round and what departs in it."""

    exchange: Exchange
    """Its plan is that of the round; the rows it sends are numbered 0 … among `sent`."""
    sent: Tensor
    """[s] int64 own rows that depart, each once: in a round one rank is sent to."""
    halo: slice
    """The halo rows that arrive."""

    def pull(self, rows: Tensor, slot: int, kind: str) -> Arrival:
        """Begin to bring the rows of the part; `rows` are one's own [n, ...]."""
        held = rows.detach()[self.sent]
        if kind == TRAINING:
            return self.exchange.pull(held, slot)
        return self.exchange.plan.pull(self.exchange.group, held, label=Label(kind, slot))

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Begin to return the gradients of the part's rows; gives those of the `sent` rows."""
        return self.exchange.push(gradient.detach(), slot)


def make_rounds(
    shard: Shard,
    plan: HaloPlan,
    group: Group,
    clock: Tensor,
    *,
    exchange: Options = "exact",
    part_rank: Sequence[int] | None = None,
) -> list[Round]:
    """Return the rounds of this rank, in the order that all ranks make them."""
    ranks = spread(shard.num_parts, group.size) if part_rank is None else list(part_rank)
    parts = [[part for part, rank in enumerate(ranks) if rank == member] for member in range(group.size)]
    # A round is a collective: a rank of few parts makes empty ones, as many as the rank of most.
    most = max(len(held) for held in parts)
    reader = torch.repeat_interleave(torch.arange(group.size), torch.tensor(plan.send_counts))
    sent_part = shard.node_part[plan.send_rows]
    rounds = []
    for turn in range(1, group.size):
        # A ring: in a round nobody is sent to by two, so that no link waits behind another's rows.
        source, target = parts[group.rank - turn], (group.rank + turn) % group.size
        for number in range(most):
            wanted = source[number] if number < len(source) else -1
            given = parts[group.rank][number] if number < len(parts[group.rank]) else -1
            arriving = shard.halo_part == wanted
            departing = (reader == target) & (sent_part == given)
            chosen = plan.select(arriving, departing)
            rows = torch.arange(len(chosen.send_rows))
            # One part of one rank comes by ascending id, as its halo rows stand.
            compact = replace(chosen, num_rows=len(rows), send_rows=rows, order=None)
            made = make_exchange(exchange, compact, group, clock)
            first = int(torch.searchsorted(shard.halo_part, wanted))
            halo = slice(first, first + chosen.num_halo)
            rounds.append(Round(made, chosen.send_rows, halo))
    return rounds


@dataclass(frozen=True, eq=False)
class Part:
    """The edges whose sources are in one part: a small block, and what its rows, columns and edges are."""

    block: Block
    """Rows are the destinations that the part reaches, columns the rows that are fetched."""
    rows: Tensor | None
    """[rows of the block] the destination that each is, each once; None: all of them, in order."""
    columns: slice | Tensor
    """The source rows of the whole block that the columns are."""
    edges: Tensor | None
    """[E of the block] their places among the edges of the whole block; None: all of them, in order."""
    round: Round | None = None
    """How the columns are fetched; None: they are own rows."""

    @property
    def places(self) -> slice | Tensor:
        """Where the rows stand among all destinations."""
        return slice(None) if self.rows is None else self.rows

    def of_rows(self, values: Tensor) -> Tensor:
        """Return the destinations' values at the rows of the part."""
        return values if self.rows is None else values[self.rows]

    def of_columns(self, values: Tensor | None) -> Tensor | None:
        """Return the source rows' values at the columns of the part."""
        return None if values is None else values[self.columns]

    def of_edges(self, values: Tensor | None) -> Tensor | None:
        """Return the values of the part's edges."""
        return values if values is None or self.edges is None else values[self.edges]

    def of_own(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the columns where they are own rows."""
        return [t if isinstance(self.columns, slice) else t[self.columns] for t in rows]

    def add_rows(self, total: Tensor, values: Tensor) -> None:
        """Add values of the part's rows to those of all destinations."""
        add_at(total, self.places, values)

    def add_columns(self, total: Tensor, values: Tensor) -> None:
        """Add values of the part's columns, which are own rows, to those of all own rows."""
        add_at(total, slice(None) if isinstance(self.columns, slice) else self.columns, values)

    def set_edges(self, total: Tensor, values: Tensor) -> None:
        """Write the values of the part's edges among those of all edges."""
        total[slice(None) if self.edges is None else self.edges] = values

    def over_all_rows(self, num_rows: int) -> Block:
        """Return the block with a row for every destination; kept, and with it where its chunks are cut."""
        rows, block = self.rows, self.block
        if rows is None:
            return block

        def make() -> Block:
            counts = torch.zeros(num_rows + 1, dtype=torch.int64, device=block.device)
            counts[rows + 1] = block.indptr.diff()
            return Block(counts.cumsum(0), block.indices, num_src=block.num_src)

        return block.cached(("over", num_rows), make)


@dataclass(frozen=True, eq=False)
class EdgeParts:
    """All edges of a block, or those of one relation, part by part; `own` need no message."""

    own: list[Part]
    remote: list[Part]


def split_edges(
    block: Any, rounds: Sequence[Round], *, own_parts: bool, edges: Tensor | None = None
) -> EdgeParts:
    """Return the parts of some edges of a block of a shard (None: all of them).

    Own sources come in one part with every destination, or with `own_parts` as the parts they are of, where
    there are several.
    """
    shard, num_own, device = block.shard, block.num_own, block.device
    indices = block.indices.long() if edges is None else block.indices[edges].long()
    edge_dst = block.edge_dst if edges is None else block.edge_dst[edges]
    own_parts = own_parts and len(shard.parts) > 1  # rows of one part need not be picked out of the own rows
    held = list(shard.parts) if own_parts else [0]
    group = torch.zeros(block.num_src, dtype=torch.int64, device=device)
    if own_parts:
        group[:num_own] = torch.searchsorted(torch.tensor(held, device=device), shard.node_part.long())
    for number, one in enumerate(rounds):
        group[num_own + one.halo.start : num_own + one.halo.stop] = len(held) + number
    of_edge = group[indices]
    # Stable: within a part edges stay by destination, of which pointers are made by runs of equal ones.
    order = torch.argsort(of_edge, stable=True)
    counts = torch.bincount(of_edge, minlength=len(held) + len(rounds)).tolist()
    kinds = None if block.edge_type is None else block.edge_type if edges is None else block.edge_type[edges]
    cutter = _Cutter(block, edges, indices, edge_dst, kinds)
    chosen = torch.split(order, counts)
    if own_parts:
        own = [cutter.own_part(places) for places in chosen[: len(held)]]
    else:
        own = [cutter.all_own(chosen[0])]
    remote = [cutter.remote(places, one) for places, one in zip(chosen[len(held) :], rounds)]
    return EdgeParts(own, remote)


@dataclass(frozen=True, eq=False)
class _Cutter:
    """Makes parts of sets of edges, which ascend."""

    whole: Any
    edges: Tensor | None
    indices: Tensor
    edge_dst: Tensor
    kinds: Tensor | None

    def all_own(self, places: Tensor) -> Part:
        """Return the edges of own sources with a row for every destination: nothing is copied in a call."""
        whole = self.whole
        columns = slice(0, whole.num_own)
        if self.edges is None and len(places) == whole.num_edges:
            return Part(self._block(whole.indptr, places, self.indices, whole.num_own), None, columns, None)
        rows = torch.arange(whole.num_dst + 1, device=whole.device)
        indptr = torch.searchsorted(self.edge_dst[places], rows)
        block = self._block(indptr, places, self.indices[places], whole.num_own)
        return Part(block, None, columns, self._places(places))

    def own_part(self, places: Tensor) -> Part:
        """Return the edges whose sources are of one own part; its columns are those that occur."""
        sources, indices = torch.unique(self.indices[places], return_inverse=True)
        rows, indptr = self._rows(places)
        return Part(self._block(indptr, places, indices, len(sources)), rows, sources, self._places(places))

    def remote(self, places: Tensor, brings: Round) -> Part:
        """Return the edges whose sources are of one remote part; its columns are all that arrive."""
        first, last = brings.halo.start + self.whole.num_own, brings.halo.stop + self.whole.num_own
        rows, indptr = self._rows(places)
        block = self._block(indptr, places, self.indices[places] - first, last - first)
        return Part(block, rows, slice(first, last), self._places(places), brings)

    def _rows(self, places: Tensor) -> tuple[Tensor, Tensor]:
        rows, counts = torch.unique_consecutive(self.edge_dst[places], return_counts=True)
        return rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def _block(self, indptr: Tensor, places: Tensor, indices: Tensor, num_src: int) -> Block:
        whole = self.whole
        return Block(
            indptr,
            indices.to(whole.indices.dtype),
            num_src=num_src,
            edge_type=None if self.kinds is None else self.kinds[places],
            num_relations=whole.num_relations,
        )

    def _places(self, places: Tensor) -> Tensor:
        return places if self.edges is None else self.edges[places]
