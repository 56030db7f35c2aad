"""The block of a shard: own rows are destinations, sources are own rows and the halo.

Layers hold the own rows and never learn more. Sums and means aggregate local edges while the halo travels;
all else joins both first. The inputs of a model do not change: their halo is fetched once, exactly, and what
is aggregated from them is remembered, whatever the exchange.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.errors import GraphError
from weft.exchanges.base import Exchange
from weft.graph.message.block import Block, Rows
from weft.graph.message.crossing import crossed
from weft.graph.message.reduction import Aggregation, Propagation
from weft.graph.parts.shard import Shard
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features, SparseFeatures
from weft.strategies.halo.recall import Recall
from weft.strategies.halo.shard_block import OneRelation, ShardBlock

_SCALES = 8
"""Scales of a layer that are known again, the latest."""


class HaloBlock(ShardBlock):
    """The edges into the own rows of a shard. All ranks make the same calls in the same order.

    `whole` is the block with every halo row: this one, or that of which a `DrawnBlock` shows a step.
    """

    rows_are_own = True

    def __init__(
        self, shard: Shard, exchange: Exchange, group: Group, *, clock: Tensor | None = None
    ) -> None:
        self.exchange, self.group = exchange, group
        self.num_own = len(shard.node_ids)
        self.num_halo = len(shard.halo_ids)
        super().__init__(
            shard,
            shard.indptr,
            shard.indices,
            num_src=self.num_own + self.num_halo,
            src_ids=shard.row_ids,
            dst_ids=shard.node_ids,
            edge_ids=shard.edge_ids,
            edge_type=shard.edge_type,
            num_relations=len(shard.edge_types),
            edge_data=shard.edge_data,
            clock=clock,
        )
        self.whole = self
        self._brought = Recall()
        self._scales: list[Tensor] = []

    def forget(self) -> None:
        """Let go of what was exchanged in a step."""
        self._brought.clear()

    # What the block is

    def by_relation(self) -> RelationBlock:
        return self.cached("by_relation", lambda: _ScaledRelations(self))

    # Constants

    def aggregates_sparse(self, h: SparseFeatures) -> bool:
        """Return whether the aggregate of a constant stays sparse; decided for all ranks together."""
        if self.whole is not self:
            return self.whole.aggregates_sparse(h)
        h = next((own for own, joined in self.joined_inputs if joined is h), h)
        if not self.constant(h):
            return False

        def decide() -> bool:
            lengths = self.join_constant(h).indptr.diff()
            counts = torch.stack([lengths[self.indices.long()].sum(), lengths.new_tensor(self.num_dst)])
            terms, rows = self.group.all_reduce(counts).wait().tolist()
            return bool(terms <= rows * min(h.shape[1] / 8, 256))

        return self.cached(("sparse", id(h)), decide)

    # What layers do with it

    def src(self, h: Any) -> Any:
        """Return own rows and the halo, [num_src, ...]."""
        if h.shape[0] != self.num_own:
            return super().src(h)
        if self.constant(h):
            return self.whole.join_constant(h)
        h = h if isinstance(h, Tensor) else h.to_dense()
        return torch.cat([h, self._brought(h, self.exchange.gather)])

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate; local edges are summed while the halo travels."""
        if self.constant(h):
            return self._aggregate_constant(h, how)
        h = h if isinstance(h, Tensor) else h.to_dense()
        return self._sum(h, how) if how.adds else super()._aggregate(h, how)

    def crossed(self, how: Propagation) -> Propagation:
        """Return the same messages of what should travel for them; what is here already is not sent again."""
        if any(t.shape[0] != self.num_own for t in how.src):
            return how
        return crossed(how, lambda h: self.constant(h) or self._brought.find(h) is not None)

    def multiplicity(self) -> Tensor | None:
        """Return how many edges each edge stands for, [E]: those of halo rows for those of rows left out."""
        scale, kept = self.exchange.scale, self.exchange.kept
        if not isinstance(scale, Tensor) and scale == 1.0:
            return None

        def make() -> Tensor:
            each = torch.ones(self.num_edges, dtype=torch.float64, device=self.device)
            places = self.halo_edges()
            if isinstance(scale, Tensor):
                assert kept is not None, "a scale a row is that of rows that exist"
                rows = self.indices[places].long() - self.num_own
                each[places] = scale.double()[kept.cumsum(0)[rows] - 1]
            else:
                each[places] = scale
            return each

        return self.cached("multiplicity", make)

    # Underneath

    def _sum(self, h: Tensor, how: Aggregation) -> Tensor:
        cut = self.cut_of(how.relation)
        local_weight, halo_weight = self._split(how.weight, how.relation)
        dst_scale = self.scale_of_rows(how, h.dtype)
        local_scale = None if how.src_scale is None else how.src_scale[: self.num_own]
        held = self._brought.find(h)
        transfer = self.exchange.start(h) if held is None else None
        local = cut.local.reduce_rows(h, "sum", local_weight, local_scale, dst_scale)
        rows = held
        if transfer is not None:
            rows = self._brought.keep(h, self.exchange.finish(transfer))
        halo_scale = self._halo_scale(how.src_scale, h.dtype)
        halo = cut.halo.reduce_rows(cast(Tensor, rows), "sum", halo_weight, halo_scale, dst_scale)
        return cast(Tensor, local).add_(cast(Tensor, halo))  # nobody else holds it

    def _halo_scale(self, src_scale: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        scale, kept = self.exchange.scale, self.exchange.kept
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if isinstance(scale, Tensor):
            scale = scale.to(wide)
        elif scale == 1.0 and src_scale is None:
            return None
        if src_scale is None:
            size = self.exchange.plan.num_halo
            return scale if isinstance(scale, Tensor) else torch.full((size,), scale, dtype=wide)
        rows = src_scale[self.num_own :] if kept is None else src_scale[self.num_own :][kept]
        return rows * scale if isinstance(scale, Tensor) or scale != 1.0 else rows

    def cut_of(self, relation: int | None) -> "Cut":
        """Return local and halo edges apart; halo columns count the rows that exist."""
        return self.cached(("cut", relation), lambda: self._make_cut(relation))

    def _make_cut(self, relation: int | None) -> "Cut":
        part = self if relation is None else self.relation(relation)
        remote = part.indices >= self.num_own
        blocks = []
        for chosen, start, size in ((~remote, 0, self.num_own), (remote, self.num_own, self.num_halo)):
            held = chosen.nonzero().flatten()
            indptr = torch.searchsorted(held, part.indptr)
            blocks.append(Block(indptr, part.indices[held] - start, num_src=size))
        return Cut(*blocks)

    def _split(self, weight: Tensor | None, relation: int | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the weights of local and of halo edges, of all or of one relation."""
        if weight is None:
            return None, None
        # Places of edges are not kept: they would be larger than the edges.
        edges = slice(None) if relation is None else self.relation_edges(relation)
        remote, chosen = self.indices[edges] >= self.num_own, weight[edges]
        return chosen[~remote], chosen[remote]

    def halo_edges(self) -> Tensor:
        """Return the places of the edges from halo rows, ascending; kept."""
        return self.cached("halo edges", lambda: (self.indices >= self.num_own).nonzero().flatten())

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        if self.whole is not self:
            return self.whole.row_degree(direction, rows, relation, weighted)

        def make() -> Tensor:
            degree = self.shard.degree(direction, relation, weighted)
            return degree[: self.num_own] if rows == "dst" else degree

        return self.cached((direction, rows, relation, weighted), make)

    def only_relation(self, relation: int) -> Block:
        return OneRelation(self, relation)

    # Constants, underneath

    def _aggregate_constant(self, h: Features, how: Aggregation) -> Features:
        """Return the exact aggregate of an input over all edges, from memory after the first time."""
        whole = self.whole
        if self is not whole and how.weight is not None:
            names = [name for name in self.edge_data if self.edge_data[name] is how.weight]
            if not names:
                raise GraphError("an input was aggregated with edge weights that the graph does not hold")
            how = replace(how, weight=whole.edge(names[0]))
        joined = len(whole.joined_inputs)
        result = Block._aggregate(whole, h, whole.asked_before(how))
        if isinstance(h, Tensor):
            del whole.joined_inputs[joined:]  # the aggregate is remembered, its wide inputs need not be
        return result

    def asked_before(self, how: Aggregation) -> Aggregation:
        """Return the same question with the equal scales of before: memory goes by identity, these are new.

        Decided by all ranks together: where all degrees are 1, say, two scales are equal on one rank alone,
        which would recall what the others fetch rows for.
        """
        given = {"src_scale": how.src_scale, "dst_scale": how.dst_scale}
        new = {name: scale for name, scale in given.items() if scale is not None and self._is_new(scale)}
        if new and self._scales:
            equal = [[_equal(scale, held) for held in self._scales] for scale in new.values()]
            agreed = self.group.all_reduce(torch.tensor(equal, dtype=torch.int32, device=self.device), "min")
            for name, row in zip(list(new), agreed.wait().tolist()):
                if 1 in row:
                    given[name] = self._scales[row.index(1)]
                    del new[name]
        self._scales = [*self._scales, *new.values()][-_SCALES:]
        return replace(how, src_scale=given["src_scale"], dst_scale=given["dst_scale"])

    def _is_new(self, scale: Tensor) -> bool:
        return not scale.requires_grad and not any(scale is held for held in self._scales)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


class Cut(NamedTuple):
    """Local and halo edges apart."""

    local: Block
    halo: Block


class _ScaledRelations(RelationBlock):
    """The pairs of a shard; those of halo rows carry the exchange's scale in sums and means."""

    def __init__(self, block: HaloBlock) -> None:
        super().__init__(block)
        self._of = block
        self._halo = self.rows >= block.num_own

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate, halo pairs scaled."""
        scale = self._of.exchange.scale  # asked each time: blocks change their exchange, exchanges their p
        plain = not isinstance(scale, Tensor) and scale == 1.0
        if not plain and how.adds:
            scale = self._scale(h.dtype)
            how = replace(how, src_scale=scale if how.src_scale is None else how.src_scale * scale)
        return super()._aggregate(h, how)

    def _scale(self, dtype: torch.dtype) -> Tensor:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        scale, kept = self._of.exchange.scale, self._of.exchange.kept
        if isinstance(scale, Tensor) and kept is not None:
            every = torch.ones(len(kept), dtype=wide).masked_scatter(kept, scale.to(wide))
            scale = every[(self.rows - self._of.num_own).clamp(min=0)]
        return torch.where(self._halo, scale, 1.0).to(wide)
