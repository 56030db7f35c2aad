"""A block whose destinations get edges on several ranks: each rank reduces its own, and results are merged.

What is reduced here is a plain block, `part`, over rows of several owners; layers see the rows they hold.
Each operation is three steps: bring the rows, run the kernel on the part, merge.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.compiler.tracing.trace import Role
from weft.errors import GraphError
from weft.graph.message.block import Block
from weft.graph.message.crossing import crossed, crossed_sums
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import Aggregation, Propagation, times_rows
from weft.graph.message.scores import DotScore, Score, parts_of
from weft.graph.parts.shard import Shard
from weft.graph.reductions import Contribution, reduction
from weft.graph.reductions.row_sums import as_matrix
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features, SparseFeatures, product
from weft.kernels.partial import attention_part
from weft.strategies.halo.shard_block import ShardBlock
from weft.strategies.merged.merge import Merge

_PLAN = Label("plan")


class MergingBlock(ShardBlock):
    """Edges of a shard, reduced into rows of several owners. All ranks make the same calls in the same order.

    `indptr` and `edge_dst` are by the rows of `part`; `num_dst` and `dst_ids` are the rows that callers hold.
    `merge` is that of the step; what comes from constants is merged by `exact`, once.
    """

    travels: tuple[Role, ...] = ()
    """The ends of edges whose rows cross the network before edges are reduced."""

    def __init__(
        self,
        shard: Shard,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_src: int,
        src_ids: Tensor,
        exact: Merge,
        group: Group,
        clock: Tensor | None = None,
    ) -> None:
        edges: dict[str, Any] = {
            "num_src": num_src,
            "edge_ids": shard.edge_ids,
            "edge_type": shard.edge_type,
            "num_relations": len(shard.edge_types),
        }
        ids: dict[str, Any] = {"src_ids": src_ids, "dst_ids": shard.node_ids}
        super().__init__(shard, indptr, indices, edge_data=shard.edge_data, clock=clock, **ids, **edges)
        self.group = group
        self.exact = self.merge = exact
        self.whole_rows = exact.alone
        self.num_dst = len(shard.node_ids)
        self.part = Block(indptr, indices, parent=self, **edges)

    # What the block is

    def aggregates_sparse(self, h: SparseFeatures) -> bool:
        """Return whether the aggregate of a constant stays sparse; decided for all ranks together."""
        if not self.constant(h):
            return False

        def decide() -> bool:
            lengths = self._source_values(h.indptr.diff())
            terms = int(self.group.all_reduce(lengths[self.indices.long()].sum(), label=_PLAN).wait())
            return bool(terms <= self.shard.num_nodes * min(h.shape[1] / 8, 256))

        return self.cached(("sparse", id(h)), decide)

    def by_relation(self) -> RelationBlock:
        return self.cached("by_relation", lambda: MergedRelations(self, lambda: self.merge))

    # What layers do with it

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return what `Block.attend` does."""
        brought = (
            replace(score, key=self.src(score.key))
            if isinstance(score, DotScore)
            else replace(score, src=self.src(score.src))
        )
        return attend_part(self.part, self.merge, brought, self.src(value), dropout, layer)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        def compute(merge: Merge) -> Features:
            rows = self._sources(h)
            scaled = replace(how, dst_scale=self.scale_of_rows(how, h.dtype))
            if isinstance(rows, SparseFeatures) and how.adds and self.aggregates_sparse(cast(Any, h)):
                return _sum_sparse(self.part, merge, rows, scaled)
            rows = rows if isinstance(rows, Tensor) else rows.to_dense()
            return aggregate_part(self.part, merge, rows, scaled)

        if not self.constant(h):
            return compute(self.merge)
        return self._memory.recall(how.question, (h, *how.tensors), lambda: compute(self.exact))

    def _propagate(self, how: Propagation) -> Tensor:
        # Rows of sources that were brought before (`src`): nothing of them is left to travel narrower.
        if any(t.shape[0] != self.num_dst for t in how.src):
            return self._merged(how)
        sums = None
        if not self.merge.alone:
            sums = crossed_sums(how, self._is_here, travels=self.travels)
        if sums is None:
            return self._merged(self.crossed(how))
        out = sums.finished(self._merged(sums.how), self.in_degree("dst"))
        return times_rows(out, self.mean_scale(out.dtype)) if how.reduce == "mean" else out

    def _merged(self, how: Propagation) -> Tensor:
        brought = replace(how, src=[self.src(t) for t in how.src])
        return reduce_messages(self.part, self.merge, brought, self)

    def _is_here(self, h: Tensor) -> bool:
        """Return whether the rows that sources read of a tensor are here, or will be in every later step."""
        return self.constant(h)

    def crossed(self, how: Propagation) -> Propagation:
        return crossed(how, self._is_here, travels=self.travels) if self.travels else how

    # Underneath

    def _sources(self, h: Features) -> Features:
        """Return the rows that messages are read from; those of a constant need not be kept."""
        return cast(Features, self.src(cast(Any, h)))

    def _source_values(self, own: Tensor) -> Tensor:
        """Return a number for each source row, from those of the rows that the caller holds."""
        return own

    def only_relation(self, relation: int) -> Block:
        raise GraphError(
            "the edges of one relation are no block of their own here; use aggregate(h, relation=...)"
        )


class MergedRelations(RelationBlock):
    """The (relation, source) pairs of a block whose results are merged; what is reduced over them is too.

    `merge` gives what merges them at the time: a block may change it from step to step.
    """

    def __init__(self, block: Block, merge: Callable[[], Merge]) -> None:
        super().__init__(block)
        self._block, self._merge = block, merge
        self.part = Block(
            self.indptr,
            self.indices,
            num_src=self.num_src,
            edge_ids=block.edge_ids,
            edge_type=block.edge_type,
            num_relations=block.num_relations,
            parent=block,
        )
        self.num_dst = block.num_dst

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return what `Block.attend` does."""
        return attend_part(self.part, self._merge(), score, value, dropout, layer)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        rows = Block.src(self, cast(Any, h))
        scaled = replace(how, dst_scale=self._block.scale_of_rows(how, rows.dtype))
        return aggregate_part(self.part, self._merge(), rows, scaled)

    def _propagate(self, how: Propagation) -> Tensor:
        checked = replace(how, src=[Block.src(self, t) for t in how.src])
        return reduce_messages(self.part, self._merge(), checked, self._block)


def aggregate_part(part: Block, merge: Merge, rows: Tensor, how: Aggregation) -> Tensor:
    """Return the merged aggregate of source rows; `how.dst_scale` is the whole scale of the caller's rows."""
    edges = part if how.relation is None else Block.relation(part, how.relation)
    if how.adds:
        total = Block.reduce_rows(edges, rows, "sum", part.chosen_weight(how), how.src_scale, None)
        return times_rows(merge(reduction("sum"), Contribution(cast(Tensor, total))), how.dst_scale)
    how.check_plain()
    flat = as_matrix(rows)
    at = edges.indptr, edges.indices
    extremes = kernels.extreme(*at, flat, how.reduce, transposed=edges.transposed_for(flat))
    merged = merge(reduction(how.reduce), Contribution(*extremes))
    return merged.reshape(len(merged), *rows.shape[1:])


def _sum_sparse(part: Block, merge: Merge, rows: SparseFeatures, how: Aggregation) -> SparseFeatures:
    edges = part if how.relation is None else Block.relation(part, how.relation)
    scale = edges.edge_factors(part.chosen_weight(how), how.src_scale, None)
    total = merge.sum_sparse(product(edges.indptr, edges.indices, rows, scale))
    if how.dst_scale is None:
        return total
    values = total.values * how.dst_scale.to(total.dtype)[total.row_ids]
    return SparseFeatures(total.indptr, total.indices, values, (total.shape[0], total.shape[1]))


def attend_part(part: Block, merge: Merge, score: Score, value: Tensor, dropout: float, layer: int) -> Tensor:
    """Return the merged attention over source rows; the destination's side of the score is the caller's."""
    if merge.alone:
        return Block.attend(part, score, value, dropout, layer=layer)
    kind, source, dst, a, slope = parts_of(score)
    dst = merge.expand(dst)
    out, mass = attention_part(
        kind,
        part.indptr,
        part.indices,
        source,
        dst,
        value,
        slope,
        a=a,
        edge=score.edge,
        dropout=dropout,
        edge_ids=part.edge_ids,
        clock=part.draw_clock() if dropout > 0 else None,
        layer=layer,
        transposed=part.transposed_for(source, value, dst, score.edge),
    )
    return merge(reduction("softmax"), Contribution(out, mass))


def reduce_messages(part: Block, merge: Merge, how: Propagation, whole: Block) -> Tensor:
    """Return the merged messages for the rows of `whole`; `how.src` are source rows of the part."""
    kind = reduction(how.reduce)
    part_of_rows = contribute(part, replace(how, dst=[merge.expand(t) for t in how.dst]))
    out = merge(kind, part_of_rows)
    return times_rows(out, whole.mean_scale(out.dtype)) if how.reduce == "mean" else out
