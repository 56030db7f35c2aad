"""Block: the one thing layers see of a graph.

Messages flow from `num_src` source rows to `num_dst` destination rows along edges kept by destination. A
layer is given a block and `h`, the rows its caller holds, and never learns whether the block is a whole
graph, a sample or a shard. `aggregate` and `attend` are fused forms; `propagate` runs any function of an
edge.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph.memory import Memory
from weft.graph.propagate import propagate
from weft.graph.reduction import Aggregation, Message, Propagation
from weft.graph.scores import Additive, Dot, GATv2, Score, parts_of
from weft.graph.sparse import Features, SparseFeatures, product

if TYPE_CHECKING:
    from weft.graph.relations import RelationBlock

Rows = Literal["src", "dst"]
PairTransform = Callable[..., Tensor | tuple[Tensor, Tensor]]
T = TypeVar("T")


class Degrees(Protocol):
    """Degrees of the whole graph, whatever part of it a block shows."""

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the edges into or out of every node: their number, float32, or summed weight, float64."""


class Block:
    """Edges from `num_src` source rows to `num_dst` destination rows, by destination.

    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)    # 0→0, 1→0, 0→1
    >>> block.aggregate(torch.tensor([[1.0], [10.0]])).flatten().tolist()
    [11.0, 1.0]

    Destinations are the first `num_dst` source rows. Without `src_ids`, `dst_ids` and `edge_ids` rows and
    edges are those of the whole graph. `edge_data` is indexed by edge id.

    What a block that communicates, samples or remembers may override; everything else is made of these:

    - `src`: the rows that messages are read from; on a shard it brings the halo;
    - `_aggregate` and `_propagate`, behind `aggregate` and `propagate`; `attend`; `aggregate_pairs` and
      `attend_pairs`, where pairs are to be made part by part;
    - `_degree`, behind `in_degree` and `out_degree`; `edge_in_degree`; `edge`; `type_ranges`; `multiplicity`;
    - `_only`, behind `relation`, and `by_relation`: the blocks of one relation and of (relation, source)
      pairs, which must bring the same rows as this one;
    - `aggregates_sparse` and `prefers_aggregate_first`: decisions that all ranks must take alike;
    - `whole_rows`, which says that results are merged with those of other ranks.
    """

    whole_rows: bool = True
    """Whether all edges into a destination are here; else results are merged with those of other ranks."""

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_src: int,
        src_ids: Tensor | None = None,
        dst_ids: Tensor | None = None,
        edge_ids: Tensor | None = None,
        edge_type: Tensor | None = None,
        num_relations: int = 1,
        edge_data: Mapping[str, Tensor] | None = None,
        degrees: Degrees | None = None,
        type_ranges: Mapping[Rows, Mapping[str, slice]] | None = None,
        transposed: "Callable[[], kernels.Transposed] | None" = None,
        clock: Tensor | None = None,
        parent: "Block | None" = None,
    ) -> None:
        self.indptr = indptr  # [num_dst + 1] int64
        self.indices = indices  # [E] source row of each edge
        self.num_src = num_src
        self.num_dst = indptr.numel() - 1
        self.num_edges = indices.numel()
        self.edge_type = edge_type  # [E] relation of each edge, None where there is one relation
        self.num_relations = num_relations
        self.parent = parent  # the block this one was derived from, whose clock it shares
        self._clock = clock
        self._src_ids, self._dst_ids, self._edge_ids = src_ids, dst_ids, edge_ids
        self._edge_data: Mapping[str, Tensor] = {} if edge_data is None else edge_data
        self._degrees = degrees
        self._type_ranges = type_ranges
        self._transpose = transposed
        self._cache: dict[Hashable, Any] = {}
        self._memory = Memory()

    # What the block is

    @property
    def device(self) -> torch.device:
        """Where the edges lie."""
        return self.indices.device

    @property
    def clock(self) -> Tensor | None:
        """The (seed, epoch, step) that draws are a function of, see weft.draw; None: every draw is fresh."""
        return self._clock if self.parent is None else self.parent.clock

    @clock.setter
    def clock(self, clock: Tensor | None) -> None:
        if self.parent is None:
            self._clock = clock
        else:
            self.parent.clock = clock

    @property
    def src_ids(self) -> Tensor:
        """The global id of each source row, [num_src] int64."""
        if self._src_ids is None:
            return self.cached("src_ids", lambda: torch.arange(self.num_src, device=self.device))
        return self._src_ids

    @property
    def dst_ids(self) -> Tensor:
        """The global id of each destination row, [num_dst] int64."""
        return self.src_ids[: self.num_dst] if self._dst_ids is None else self._dst_ids

    @property
    def edge_ids(self) -> Tensor:
        """The global id of each edge: its place in the canonical order of the whole graph, [E] int64."""
        if self._edge_ids is None:
            return self.cached("edge_ids", lambda: torch.arange(self.num_edges, device=self.device))
        return self._edge_ids

    @property
    def transposed(self) -> "kernels.Transposed":
        """The edges by source row; built on first use and kept. Backward runs on it."""
        make = self._transpose or (lambda: kernels.transpose_csr(self.indptr, self.indices, self.num_src))
        return self.cached("transposed", make)

    @property
    def edge_dst(self) -> Tensor:
        """The destination row of each edge, [E] int64."""

        def make() -> Tensor:
            return torch.repeat_interleave(self.indptr.diff(), output_size=self.num_edges)

        return self.cached("edge_dst", make)

    def edge_index(self) -> Tensor:
        """Return (2, E) int64 of source row and destination row, in block order: what PyG's layers take."""
        return self.cached("edge_index", lambda: torch.stack([self.indices.long(), self.edge_dst]))

    def edge(self, name: str) -> Tensor:
        """Return the edge weight, features or time under `name`, [E, ...] in block order."""
        if name not in self._edge_data:
            known = ", ".join(self._edge_data) or "none"
            raise GraphError(f"the graph has no edge data {name!r}; it has: {known}")
        if self._edge_ids is None:
            return self._edge_data[name]
        return self.cached(("edge", name), lambda: self._edge_data[name][self.edge_ids])

    def has_edge(self, name: str) -> bool:
        """Return whether `edge(name)` would find something."""
        return name in self._edge_data

    def in_degree(self, rows: Rows = "dst", relation: int | None = None, *, weighted: bool = False) -> Tensor:
        """Return the in-degrees, in the whole graph, of the source or destination rows."""
        return self._degree("in", rows, relation, weighted)

    def out_degree(
        self, rows: Rows = "src", relation: int | None = None, *, weighted: bool = False
    ) -> Tensor:
        """Return the out-degrees, in the whole graph, of the source or destination rows."""
        return self._degree("out", rows, relation, weighted)

    def edge_in_degree(self, end: Rows = "dst", relation: int | None = None) -> Tensor:
        """Return the in-degree, in the whole graph, of one end of each edge (of a relation, in it), [E]."""
        rows = self.edge_dst if end == "dst" else self.indices.long()
        chosen = rows if relation is None else rows[self._relation_edges(relation)]
        return self.in_degree(end, relation)[chosen]

    def type_ranges(self, rows: Rows = "src") -> dict[str, slice]:
        """Return the range of source or destination rows of each node type."""
        if self._type_ranges is not None:
            return dict(self._type_ranges[rows])
        return {"node": slice(0, self.num_src if rows == "src" else self.num_dst)}

    def typed_rows(self, rows: Rows = "src") -> list[tuple[str, slice]]:
        """Return (node type, range of rows) in the order of rows; a type may have several in a sample."""
        ranges = [(kind, part) for kind, part in self.type_ranges(rows).items() if part.stop > part.start]
        return sorted(ranges, key=lambda item: item[1].start)

    def multiplicity(self) -> Tensor | None:
        """Return how many edges of the whole graph each edge stands for, [E]; None: itself alone."""
        return None

    def mean_scale(self, dtype: torch.dtype = torch.float32, relation: int | None = None) -> Tensor:
        """Return 1 / in-degree in the whole graph, 1 without edges, [num_dst]: the scale of a mean."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32

        def make() -> Tensor:
            return self.in_degree("dst", relation).clamp(min=1).to(wide).reciprocal()

        return self.cached(("mean", wide, relation), make)

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make()` gave the first time for this key; layers keep norms and the like here."""
        if key not in self._cache:
            # What is kept outlives the call that asked first, which may be an evaluation in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                self._cache[key] = make()
        return cast(T, self._cache[key])

    def draw_clock(self) -> Tensor:
        """Return the clock that draws of this block use: its own, or a fresh one from torch's generator."""
        return torch.randint(2**62, (3,), device="cpu") if self.clock is None else self.clock

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
        asked, terms = self._cache.get("terms", (None, 0))
        if asked is not h.indptr:
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
            raise GraphError(f"expected {self.num_src:,} rows, one a source of the block; got {h.shape[0]:,}")
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
        return self._aggregate(h, Aggregation(reduce, weight, relation, src_scale, dst_scale))

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return the sum of `value` rows [*, H, D] weighted by the softmax of `score` over incoming edges.

        `dropout` drops attention weights by draws keyed with the ids of the edges and the number of the
        `layer`.
        """
        _, source, dst, _, _ = parts_of(score)
        options: dict[str, Any] = {
            "edge": score.edge,
            "dropout": dropout,
            "edge_ids": self._edge_ids,
            "clock": self.draw_clock() if dropout > 0 else None,
            "layer": layer,
            "transposed": self._transposed_for(source, value, dst, score.edge),
        }
        rows, value = self.src(source), self.src(value)
        at = (self.indptr, self.indices)
        if isinstance(score, Additive):
            return kernels.attention(*at, rows, score.dst, value, score.negative_slope, **options)
        if isinstance(score, GATv2):
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

        `message(*src, *dst, *edge, *params)` is given a row an edge of each tensor and returns a row an edge;
        for "softmax" it returns (score, value). `src` are rows the caller holds, `dst` has a row a
        destination, `edge` is in block order. Where the edges are many it runs part by part and again in
        backward, so nothing of the size of edges × width is kept; tensors that need a gradient must be among
        the arguments.

        >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
        >>> h = torch.tensor([[1.0], [10.0]])
        >>> block.propagate(lambda u, v: u - v, src=[h], dst=[h], reduce="max").flatten().tolist()
        [9.0, -9.0]
        """
        how = Propagation(message, src, dst, edge, reduce, params)
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

        `transform(pairs, *rows, *params)` makes the rows, one a pair of `pairs`, a `by_relation()` block;
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

        `transform` makes (key, value), a row a pair each, as in `aggregate_pairs`; `query` has a row a
        destination.
        """
        pairs = self.by_relation()
        key, value = transform(pairs, *(self.src(t) for t in src), *params)
        return pairs.attend(Dot(key, query, scale), value, dropout, layer=layer)

    def relation(self, relation: int) -> "Block":
        """Return the edges of one relation between the same rows, kept after first use."""
        if not 0 <= relation < self.num_relations:
            raise GraphError(f"relation {relation} asked for, the block has {self.num_relations}: 0 … n - 1")
        if self.edge_type is None:
            return self
        return self.cached(("relation", relation), lambda: self._only(relation))

    def by_relation(self) -> "RelationBlock":
        """Return the block whose source rows are the (relation, source) pairs that occur; kept."""
        from weft.graph.relations import RelationBlock  # which is itself a Block

        return self.cached("by_relation", lambda: RelationBlock(self))

    def __repr__(self) -> str:
        counts = f"num_src={self.num_src:,}, num_dst={self.num_dst:,}, num_edges={self.num_edges:,}"
        return f"{type(self).__name__}({counts})"

    # How it does it: what blocks that communicate or sample override

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate; that of a constant is remembered."""

        def compute() -> Features:
            part = self if how.relation is None else self.relation(how.relation)
            reduce = "sum" if how.adds else how.reduce
            scale = self._scale_of_rows(how, h.dtype)
            return part._reduce(self.src(h), reduce, self._chosen_weight(how), how.src_scale, scale)

        return self._memory.recall(how.question, (h, *how.tensors), compute)

    def _propagate(self, how: Propagation) -> Tensor:
        """Return the reduced messages."""
        return propagate(self, replace(how, src=[self.src(t) for t in how.src]))

    # Underneath

    def _scale_of_rows(self, how: Aggregation, dtype: torch.dtype) -> Tensor | None:
        """Return what the rows of the result are multiplied with."""
        if how.reduce != "mean":
            return how.dst_scale
        mean = self.mean_scale(dtype, how.relation)
        return mean if how.dst_scale is None else mean * how.dst_scale

    def _chosen_weight(self, how: Aggregation) -> Tensor | None:
        """Return the weights of the edges that are reduced: all, or those of one relation."""
        if how.weight is None or how.relation is None:
            return how.weight
        return how.weight[self._relation_edges(how.relation)]

    def _reduce(
        self,
        h: Features,
        reduce: str,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
    ) -> Features:
        if isinstance(h, SparseFeatures):
            if reduce == "sum" and self.aggregates_sparse(h):
                return product(self.indptr, self.indices, h, self._edge_scale(weight, src_scale, dst_scale))
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
            transposed=self._transposed_for(h, weight),
        )
        return out if flat is h else out.reshape(self.num_dst, *h.shape[1:])

    def _edge_scale(
        self, weight: Tensor | None, src_scale: Tensor | None, dst_scale: Tensor | None
    ) -> Tensor | None:
        src = None if src_scale is None else src_scale[self.indices.long()]
        dst = None if dst_scale is None else dst_scale[self.edge_dst]
        factors = [factor for factor in (weight, src, dst) if factor is not None]
        return torch.stack(factors).prod(0) if factors else None

    def _transposed_for(self, *inputs: Tensor | None) -> "kernels.Transposed | None":
        """Give backward the transposed edges, and build them only where there will be a backward."""
        wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
        return self.transposed if wanted else None

    def _degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        def make() -> Tensor:
            degrees = self._degrees or _OwnDegrees(self)
            degree = degrees.degree(direction, relation, weighted)
            ids = self._src_ids if rows == "src" or self._dst_ids is None else self._dst_ids
            if ids is not None and not isinstance(degrees, _OwnDegrees):
                degree = degree[ids]
            return degree[: self.num_dst if rows == "dst" else self.num_src]

        return self.cached((direction, rows, relation, weighted), make)

    def _own_degree(self, direction: str, relation: int | None, weighted: bool) -> Tensor:
        """Count the block's own edges: right for a block that was made by hand and is the whole graph."""
        ends = self.edge_dst if direction == "in" else self.indices.long()
        counted = self.edge("weight").double() if weighted else torch.ones(len(ends), dtype=torch.float64)
        if relation is not None and self.edge_type is not None:
            counted = counted * (self.edge_type == relation)
        num_nodes = max(self.num_src, self.num_dst)
        degree = torch.bincount(ends, counted.to(ends.device), minlength=num_nodes)
        return degree if weighted else degree.float()

    def _relation_edges(self, relation: int) -> Tensor | slice:
        kinds = self.edge_type
        if kinds is None:
            return slice(None)
        return self.cached(("edges of", relation), lambda: (kinds == relation).nonzero().flatten())

    def _only(self, relation: int) -> "Block":
        edges = cast(Tensor, self._relation_edges(relation))
        before = torch.searchsorted(edges, self.indptr)  # edges of the relation before each row
        return Block(
            before,
            self.indices[edges],
            num_src=self.num_src,
            src_ids=self._src_ids,
            dst_ids=self._dst_ids,
            edge_ids=self.edge_ids[edges],
            edge_data=self._edge_data,
            degrees=self._degrees or _OwnDegrees(self),
            type_ranges=self._type_ranges,
            parent=self,
        )


class _OwnDegrees:
    """Degrees of a block made by hand, which is its own whole graph."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        return self.block._own_degree(direction, relation, weighted)
