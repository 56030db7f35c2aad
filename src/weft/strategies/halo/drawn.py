"""The block of a step in which some halo rows do not exist: their edges are missing, and so is their memory.

Rows and their numbers are those of the block with every halo row. Sums and means work on its local edges and
on the few edges of halo rows that were drawn; attention, extremes and messages on own and drawn rows alone.
Edges in this block's own order are made when somebody asks for them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from weft.exchanges.base import Exchange
from weft.graph.message.block import Block, Rows
from weft.graph.message.propagate import propagate
from weft.graph.message.reduction import Aggregation, Propagation
from weft.graph.message.scores import DotScore, Score
from weft.graph.sparse import Features
from weft.strategies.halo.block import Cut, HaloBlock
from weft.strategies.halo.recall import Recall


class DrawnBlock(HaloBlock):
    """The edges into own rows from own and drawn rows. All ranks make the same calls in the same order."""

    def __init__(self, whole: HaloBlock, exchange: Exchange) -> None:
        # What the whole block holds, but for its edges: those of this one come by `__getattr__`.
        self.__dict__.update({name: held for name, held in vars(whole).items() if name not in _EDGES})
        assert exchange.kept is not None, "asked only where some rows are missing"
        self.whole, self.exchange = whole, exchange
        self.kept = exchange.kept
        self._cache, self._brought = {}, Recall()

    def __getattr__(self, name: str) -> Any:
        """Make what is asked for the first time."""
        if name not in _EDGES:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        made = self.__dict__[name] = _EDGES[name](self)
        return made

    # What layers do with it

    def src(self, h: Any) -> Any:
        """Return own rows and the halo, [num_src, ...]; rows that do not exist in this step are zero."""
        if h.shape[0] != self.num_own or self.constant(h):
            return super().src(h)
        own = h if isinstance(h, Tensor) else h.to_dense()
        rows = own.new_zeros(self.num_halo, *own.shape[1:])
        return torch.cat(
            [own, rows.index_copy(0, self._drawn_rows, self._brought(own, self.exchange.gather))]
        )

    def edge(self, name: str) -> Tensor:
        if name not in self.shard.edge_data:
            return super().edge(name)  # which refuses
        return self.cached(("edge", name), lambda: self.shard.edge_data[name][self.exists()])

    def has_edge(self, name: str) -> bool:
        return name in self.shard.edge_data

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return what `Block.attend` does, over own and drawn rows."""
        edges = self._compact()
        if dropout > 0:
            edges.picked_edges = self.picked_edges
        brought: Score
        if isinstance(score, DotScore):
            brought = replace(score, key=self._rows(score.key))
        else:
            brought = replace(score, src=self._rows(score.src))
        return edges.attend(brought, self._rows(value), dropout, layer=layer)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        if how.adds or self.constant(h) or how.relation is not None:
            return super()._aggregate(h, how)
        how.check_plain()
        own = h if isinstance(h, Tensor) else h.to_dense()
        return self._compact().reduce_rows(self._rows(own), how.reduce, None, None, None)

    def _reduce_messages(self, how: Propagation) -> Tensor:
        return propagate(self._compact(), replace(how, src=[self._rows(t) for t in how.src]))

    # Underneath

    def _rows(self, h: Tensor) -> Tensor:
        """Return own and drawn rows, [own + drawn, ...], from own rows or from all of them."""
        if h.shape[0] == self.num_own and not self.constant(h):
            return torch.cat([h, self._brought(h, self.exchange.gather)])
        joined = cast(Tensor, self.src(h))
        return torch.cat([joined[: self.num_own], joined[self.num_own :][self.kept]])

    def _compact(self) -> Block:
        """Return the edges with columns that count own and drawn rows."""

        def make() -> Block:
            own = torch.arange(self.num_own, device=self.kept.device)
            place = torch.cat([own, self.num_own + self.kept.cumsum(0) - 1])
            columns = place.to(self.shard.indices.dtype).index_select(0, self.shard.indices[self.exists()])
            return _Compact(self, columns)

        return self.cached("compact", make)

    def exists(self) -> Tensor:
        """Return whether the source of each edge of the shard exists, [E] bool."""
        every = torch.cat([self.kept.new_ones(self.num_own), self.kept])
        return every.index_select(0, self.shard.indices)

    def halo_edges(self) -> Tensor:
        return self.cached(
            "halo edges", lambda: (self._compact().indices >= self.num_own).nonzero().flatten()
        )

    @property
    def _drawn_rows(self) -> Tensor:
        return self.cached("drawn rows", lambda: self.kept.nonzero().flatten())

    def _make_cut(self, relation: int | None) -> Cut:
        # Local edges are the same in every step, and so is what backward makes of them: only the few
        # edges of the halo are gone through again.
        cut = self.whole.cut_of(relation)
        return Cut(cut.local, _only_kept(cut.halo, self.kept))


class _Compact(Block):
    """Edges among own and drawn rows; degrees are the whole graph's."""

    def __init__(self, of: DrawnBlock, columns: Tensor) -> None:
        super().__init__(of.indptr, columns, num_src=of.num_own + int(of.kept.sum()), parent=of)
        self._of = of

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        degree = self._of.row_degree(direction, rows, relation, weighted)
        own = self._of.num_own
        return degree if rows == "dst" else torch.cat([degree[:own], degree[own:][self._of.kept]])


def _row_pointers(block: DrawnBlock) -> Tensor:
    small = torch.int32 if len(block.shard.indices) < 2**31 else torch.int64
    before = block.exists().cumsum(0, dtype=small)  # edges that exist up to each, itself included
    ends = before[(block.shard.indptr[1:] - 1).clamp(min=0)] if len(before) else block.shard.indptr[1:]
    first = block.shard.indptr[1:] == 0  # rows before the first edge
    return torch.cat([block.shard.indptr[:1], ends.long().masked_fill(first, 0)])


def _of_edges(name: str) -> Callable[[DrawnBlock], Tensor | None]:
    def make(block: DrawnBlock) -> Tensor | None:
        held = getattr(block.shard, name)
        return None if held is None else held[block.exists()]

    return make


# What a block holds of its edges, by the name of the attribute.
_EDGES: dict[str, Callable[[DrawnBlock], Any]] = {
    "indptr": _row_pointers,
    "indices": _of_edges("indices"),
    "edge_type": _of_edges("edge_type"),
    "picked_edges": _of_edges("edge_ids"),
    "num_edges": lambda block: int(block.indptr[-1]),
    "edge_data": lambda block: {name: block.edge(name) for name in block.shard.edge_data},
}


def _only_kept(halo: Block, kept: Tensor) -> Block:
    """Return the edges of halo rows that exist, whose columns count those rows."""
    held = kept.index_select(0, halo.indices).nonzero().flatten()
    place = (kept.cumsum(0) - 1).to(halo.indices.dtype)
    indices = place.index_select(0, halo.indices[held])
    return Block(torch.searchsorted(held, halo.indptr), indices, num_src=int(kept.sum()))
