"""The block of one cell of a grid: sources are the rows of its column, destinations those of its row.

Own rows come first on both sides, then those of the others, one rank after the other. Sources are gathered in
the column, results merged in the row. The inputs of a model do not change: they are gathered once, exactly.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.errors import GraphError
from weft.exchanges.base import Exchange
from weft.graph.degrees import edge_destinations
from weft.graph.message.block import Rows
from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features
from weft.graph.topology import index_dtype
from weft.strategies.halo.recall import Recall
from weft.strategies.merged.merge import Merge
from weft.strategies.merged.merging_block import MergingBlock

_PLAN = Label("plan")
_FOREIGN = "edges of this cell join rows of others; the shards are of different grids: partition again"


class GridBlock(MergingBlock):
    """The edges of cell (i, j): from the rows of column j to those of row i.

    `exchange` is the gather of the step; its plan brings the rows of the column, `row` those of the row.
    """

    travels = ("source", "destination")

    def __init__(
        self,
        shard: Shard,
        exchange: Exchange,
        row: HaloPlan,
        exact: Merge,
        *,
        group: Group,
        clock: Tensor | None = None,
    ) -> None:
        sources = torch.cat([shard.node_ids, exchange.whole_plan.halo_ids])
        targets = torch.cat([shard.node_ids, row.halo_ids])
        self.exchange = exchange
        indices = _places(sources, shard.row_ids)[shard.indices.long()]
        if bool((indices == len(sources)).any()):
            raise GraphError(_FOREIGN)
        super().__init__(
            shard,
            _row_pointers(shard, targets),
            indices.to(index_dtype(len(sources))),
            num_src=len(sources),
            src_ids=sources,
            exact=exact,
            group=group,
            clock=clock,
        )
        self.num_own = len(shard.node_ids)
        self._recall = Recall()

    def forget(self) -> None:
        """Let go of what was gathered in a step."""
        self._recall.clear()

    def src(self, h: Any) -> Any:
        """Return own rows, then those of the rest of the column, [num_src, ...]."""
        if h.shape[0] != self.num_own:
            return super().src(h)
        if self.constant(h):
            return self.join_constant(h)
        h = h if isinstance(h, Tensor) else h.to_dense()
        return torch.cat([h, self._recall(h, self.exchange.gather)])

    def _is_here(self, h: Tensor) -> bool:
        return super()._is_here(h) or self._recall.find(h) is not None

    def edge_in_degree(self, end: Rows = "dst", relation: int | None = None) -> Tensor:
        if end == "src":
            return super().edge_in_degree(end, relation)
        rows = self.cached("shard rows", lambda: edge_destinations(self.shard.indptr))
        chosen = rows if relation is None else rows[self.relation_edges(relation)]
        return self.shard.degree("in", relation, False)[chosen]

    def _sources(self, h: Features) -> Features:
        joined = len(self.joined_inputs)
        rows = super()._sources(h)
        del self.joined_inputs[joined:]  # the aggregate is remembered, its inputs need not be
        return rows

    def _source_values(self, own: Tensor) -> Tensor:
        plan, group = self.exchange.whole_plan, self.exchange.group
        return torch.cat([own, plan.pull(group, own, label=_PLAN).wait()])

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        def make() -> Tensor:
            own = self.shard.degree(direction, relation, weighted)[: self.num_own]
            return own if rows == "dst" else self._source_values(own)

        return self.cached((direction, rows, relation, weighted), make)


def _row_pointers(shard: Shard, targets: Tensor) -> Tensor:
    """Return indptr over all rows of the grid's row, from that over the rows that edges touch.

    Both have own rows first, then those of one part after the other by id: edges need not move.
    """
    counts = shard.indptr.diff()
    touched = counts.nonzero().flatten()
    places = _places(targets, shard.row_ids[touched])
    if bool((places.diff() <= 0).any()) or bool((places == len(targets)).any()):
        raise GraphError(_FOREIGN)
    total = counts.new_zeros(len(targets) + 1)
    total[places + 1] = counts[touched]
    return total.cumsum(0)


def _places(among: Tensor, ids: Tensor) -> Tensor:
    """Return where each id stands among those held; len(held) where it does not."""
    ordered, order = torch.sort(among)
    slot = torch.searchsorted(ordered, ids).clamp(max=max(len(among) - 1, 0))
    if not len(among):
        return torch.zeros_like(ids)
    return torch.where(ordered[slot] == ids, order[slot], len(among))
