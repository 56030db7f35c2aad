"""Block: the one thing layers see of a graph.

Messages flow from `num_src` source rows to `num_dst` destination rows along edges kept by destination. A
layer is given a block and `h`, the rows its caller holds, and never learns whether the block is a whole
graph, a sample or a shard. `aggregate` and `attend` are fused forms; `propagate` runs any function of an
edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph.block_edges import BlockEdges, DegreeSource, OwnDegrees, Rows
from weft.graph.message.propagate import propagate
from weft.graph.message.reduction import Aggregation, Message, Propagation
from weft.graph.message.scores import Additive, DotScore, GATv2Score, Score, parts_of
from weft.graph.sparse import Features, SparseFeatures, product
from weft.kernels.transforms import refuse_transforms

if TYPE_CHECKING:
    from weft.graph.relations import RelationBlock

__all__ = ["Block", "DegreeSource", "PairTransform", "Rows"]

PairTransform = Callable[..., Tensor | tuple[Tensor, Tensor]]


class Block(BlockEdges):
    """Edges from `num_src` source rows to `num_dst` destination rows, by destination.

    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)    # 0→0, 1→0, 0→1
    >>> block.aggregate(torch.tensor([[1.0], [10.0]])).flatten().tolist()
    [11.0, 1.0]

    Destinations are the first `num_dst` source rows. Without `src_ids`, `dst_ids` and `edge_ids` rows and
    edges are those of the whole graph. `edge_data` is indexed by edge id.

    What a block that communicates, samples or remembers may override; everything else is made of these:

    - `src`: the rows that messages are read from; on a shard it brings the halo;
    - `_aggregate` and `_propagate`, behind `aggregate` and `propagate`; `_reduce_messages`, behind the
      latter, after messages were weighed; `attend`; `aggregate_pairs` and `attend_pairs`, where pairs are
      to be made part by part;
    - `row_degree`, behind `in_degree` and `out_degree`; `edge_in_degree`, `relation_in_degree`; `edge`;
      `type_ranges`; `multiplicity`;
    - `only_relation`, behind `relation`, and `by_relation`: the blocks of one relation and of (relation,
      source) pairs, which must bring the same rows as this one;
    - `aggregates_sparse` and `prefers_aggregate_first`: decisions that all ranks must take alike;
    - `whole_rows`, which says that results are merged with those of other ranks.
    """

    whole_rows: bool = True
    """Whether all edges into a destination are here; else results are merged with those of other ranks."""

    takes_messages: bool = True
    """Whether `propagate` has an answer; else sums and means of rows alone are known here."""

    rows_are_own: bool = False
    """Whether callers hold the rows of nodes that this process owns, and of no others."""

    # Constants

    def mark_constant(self, h: Features) -> None:
        """Say that `h` is an input that training does not change: its aggregate is computed once and kept."""
        self._memory.mark(h)

    def constant(self, h: Features) -> bool:
        """Return whether `h` is a marked input, such as the graph's own features, and carries no gradient."""
        return self._memory.holds(h)

    def prefers_aggregate_first(self, h: Features) -> bool:
        """Return whether a linear layer should aggregate `h` before its transform: after once it is free."""
        return self.constant(h) and (isinstance(h, Tensor) or self.aggregates_sparse(h))

    def aggregates_sparse(self, h: SparseFeatures) -> bool:
        """Return whether the aggregate of `h` stays sparse: at worst 1/8 full and 256 values a row."""

        if h.shape[0] != self.num_src:
            return False
        counted, terms = self._cache.get("terms", (None, 0))
        if counted is not h.indptr:
            lengths = h.indptr[1:] - h.indptr[:-1]
            terms = int(lengths[self.indices.long()].sum())
            self._cache["terms"] = (h.indptr, terms)
        return bool(terms <= self.num_dst * min(h.shape[1] / 8, 256))

    # What layers do with it

    @overload
    def src(self, h: Tensor) -> Tensor: ...
    @overload
    def src(self, h: SparseFeatures) -> SparseFeatures: ...
    def src(self, h: Features) -> Features:
        """Return the rows that messages are read from, [num_src, ...]."""
        if h.shape[0] != self.num_src:
            raise GraphError(
                f"expected {self.num_src:,} rows, one per source of the block; got {h.shape[0]:,}"
            )
        return h

    @overload
    def dst(self, h: Tensor) -> Tensor: ...
    @overload
    def dst(self, h: SparseFeatures) -> SparseFeatures: ...
    def dst(self, h: Features) -> Features:
        """Return the rows that messages are written to, [num_dst, ...]."""
        if h.shape[0] < self.num_dst:
            raise GraphError(f"expected at least the {self.num_dst:,} destination rows; got {h.shape[0]:,}")
        return h if h.shape[0] == self.num_dst else h[: self.num_dst]

    @overload
    def aggregate(
        self,
        h: Tensor,
        reduce: str = "sum",
        weight: Tensor | None = None,
        relation: int | None = None,
        *,
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> Tensor: ...
    @overload
    def aggregate(
        self,
        h: SparseFeatures,
        reduce: str = "sum",
        weight: Tensor | None = None,
        relation: int | None = None,
        *,
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> Features: ...
    def aggregate(
        self,
        h: Features,
        reduce: str = "sum",
        weight: Tensor | None = None,
        relation: int | None = None,
        *,
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> Features:
        """Return, for each destination, the reduced rows of `h` over its incoming edges, [num_dst, ...].

        `reduce` is sum, mean (over the in-degree in the whole graph), max or min; rows without edges give 0.
        `weight` is [E] or [E, heads] in block order, also where `relation` picks the edges of one relation.
        The scales, [num_src] and [num_dst], multiply rows before and after the sum and take no gradient.
        Sparse features give sparse ones where `aggregates_sparse` says so. The aggregate of a constant is
        remembered.
        """
        refuse_transforms()
        return self._aggregate(h, Aggregation(reduce, weight, relation, src_scale, dst_scale))

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return the sum of `value` rows [*, H, D] weighted by the softmax of `score` over incoming edges.

        `dropout` drops attention weights by draws keyed with the ids of the edges and the number of the
        `layer`.
        """
        refuse_transforms()
        _, source, dst, _, _ = parts_of(score)
        options: dict[str, Any] = {
            "edge": score.edge,
            "dropout": dropout,
            "edge_ids": self.picked_edges,
            "clock": self.draw_clock() if dropout > 0 else None,
            "layer": layer,
            "transposed": self.transposed_for(source, value, dst, score.edge),
        }
        rows, value = self.src(source), self.src(value)
        at = (self.indptr, self.indices)
        if isinstance(score, Additive):
            return kernels.attention(*at, rows, score.dst, value, score.negative_slope, **options)
        if isinstance(score, GATv2Score):
            return kernels.attention_gatv2(
                *at, rows, score.dst, score.a, value, score.negative_slope, **options
            )
        return kernels.attention_dot(*at, rows, score.query, value, score.scale, **options)

    def propagate(
        self,
        message: Message,
        src: Sequence[Tensor] = (),
        dst: Sequence[Tensor] = (),
        edge: Sequence[Tensor] = (),
        reduce: str = "sum",
        params: Sequence[Tensor] = (),
    ) -> Tensor:
        """Return the reduced messages of any function of an edge, [num_dst, ...].

        `message(*src, *dst, *edge, *params)` gets one row per edge of each tensor and returns one per edge;
        for "softmax" it returns (score, value). `src` are rows the caller holds, `dst` has one row per
        destination, `edge` is in block order. Where the edges are many it is compiled (`weft.compiler`), or
        runs part by part and again in backward, so nothing of the size of edges × width is kept; tensors
        that need a gradient must be among the arguments, or parameters.

        >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
        >>> h = torch.tensor([[1.0], [10.0]])
        >>> block.propagate(lambda u, v: u - v, src=[h], dst=[h], reduce="max").flatten().tolist()
        [9.0, -9.0]
        """
        refuse_transforms()
        how = Propagation(message, src, dst, edge, reduce, params)
        how.check_given()
        how.check_rows(num_dst=self.num_dst, num_edges=self.num_edges)
        return self._propagate(how)

    def aggregate_pairs(
        self,
        transform: PairTransform,
        src: Sequence[Tensor],
        params: Sequence[Tensor] = (),
        *,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the sum over incoming edges of a row for each (relation, source) pair, [num_dst, ...].

        `transform(pairs, *rows, *params)` makes the rows, one per pair of `pairs`, a `by_relation()` block;
        `rows` are what messages are read from, for each tensor of `src`, rows the caller holds. It may run
        part by part, and again in backward; tensors that need a gradient must be among the arguments.
        """
        pairs = self.by_relation()
        made = transform(pairs, *(self.src(t) for t in src), *params)
        return pairs.aggregate(cast(Tensor, made), "sum", weight)

    def attend_pairs(
        self,
        transform: PairTransform,
        src: Sequence[Tensor],
        params: Sequence[Tensor] = (),
        *,
        query: Tensor,
        scale: float = 1.0,
        dropout: float = 0.0,
        layer: int = 0,
    ) -> Tensor:
        """Return dot-product attention over (relation, source) pairs, [num_dst, H, D].

        `transform` makes (key, value), one row per pair each, as in `aggregate_pairs`; `query` has one row
        per destination.
        """
        pairs = self.by_relation()
        key, value = transform(pairs, *(self.src(t) for t in src), *params)
        return pairs.attend(DotScore(key, query, scale), value, dropout, layer=layer)

    def relation(self, relation: int) -> "Block":
        """Return the edges of one relation between the same rows, kept after first use."""
        if not 0 <= relation < self.num_relations:
            raise GraphError(f"relation {relation} asked for, the block has {self.num_relations}: 0 … n - 1")
        if self.edge_type is None:
            return self
        return self.cached(("relation", relation), lambda: self.only_relation(relation))

    def by_relation(self) -> "RelationBlock":
        """Return the block whose source rows are the (relation, source) pairs that occur; kept."""
        from weft.graph.relations import RelationBlock  # which is itself a Block

        return self.cached("by_relation", lambda: RelationBlock(self))

    # How it does it: what blocks that communicate or sample override

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate; that of a constant is remembered."""

        def compute() -> Features:
            part = self if how.relation is None else self.relation(how.relation)
            reduce = "sum" if how.adds else how.reduce
            scale = self.scale_of_rows(how, h.dtype)
            return part.reduce_rows(self.src(h), reduce, self.chosen_weight(how), how.src_scale, scale)

        return self._memory.recall(how.question, (h, *how.tensors), compute)

    def _propagate(self, how: Propagation) -> Tensor:
        """Return the reduced messages; in sums and means each counts for all that its edge stands for."""
        stands_for = self.multiplicity() if how.adds else None
        return self._reduce_messages(how if stands_for is None else how.weighed(stands_for))

    def _reduce_messages(self, how: Propagation) -> Tensor:
        """Return the messages reduced, of the edges there are."""
        return propagate(self, replace(how, src=[self.src(t) for t in how.src]))

    # Underneath

    def scale_of_rows(self, how: Aggregation, dtype: torch.dtype) -> Tensor | None:
        """Return what the rows of the result are multiplied with."""
        if how.reduce != "mean":
            return how.dst_scale
        mean = self.mean_scale(dtype, how.relation)
        return mean if how.dst_scale is None else mean * how.dst_scale

    def chosen_weight(self, how: Aggregation) -> Tensor | None:
        """Return the weights of the edges that are reduced: all, or those of one relation."""
        if how.weight is None or how.relation is None:
            return how.weight
        return how.weight[self.relation_edges(how.relation)]

    def reduce_rows(
        self,
        h: Features,
        reduce: str,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
    ) -> Features:
        if isinstance(h, SparseFeatures):
            if reduce == "sum" and self.aggregates_sparse(h):
                return product(self.indptr, self.indices, h, self.edge_factors(weight, src_scale, dst_scale))
            h = h.to_dense()
        flat = h if h.dim() in (2, 3) else h.reshape(h.shape[0], -1)
        out = kernels.spmm(
            self.indptr,
            self.indices,
            flat,
            weight,
            reduce,
            src_scale=src_scale,
            dst_scale=dst_scale,
            transposed=self.transposed_for(h, weight),
        )
        return out if flat is h else out.reshape(self.num_dst, *h.shape[1:])

    def only_relation(self, relation: int) -> "Block":
        edges = cast(Tensor, self.relation_edges(relation))
        before = torch.searchsorted(edges, self.indptr)  # edges of the relation before each row
        return Block(
            before,
            self.indices[edges],
            num_src=self.num_src,
            src_ids=self._src_ids,
            dst_ids=self._dst_ids,
            edge_ids=self.edge_ids[edges],
            edge_data=self.edge_data,
            degrees=self.degree_source or OwnDegrees(self),
            type_ranges=self._type_ranges,
            parent=self,
        )
