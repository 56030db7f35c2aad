"""The block of a sample: sums over drawn edges that stand for all edges of the row.

A layer must not see whether it is given all edges or a sample. Degrees are those of the whole graph, so a sum
(and a mean, which divides the sum by the whole degree) has to be scaled up: an edge drawn with one of
`fanout` draws from `degree` edges stands for degree / fanout of them. The result is unbiased for sums and is
the plain mean of the sample for means. Maxima and attention, which normalises itself, are over the sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.message.block import Block, Rows
from weft.graph.message.reduction import Aggregation, Propagation, times_rows
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features
from weft.graph.views import EdgeView

Degree = Callable[[int | None], Tensor]


class Scaled(Block):
    """Sums of edges that stand for several each."""

    edge_scale: Tensor | None = None
    """[E] how many edges of the whole graph each edge stands for, where edges of a row differ in that."""
    enhanced: bool = False
    """Whether the diagonal was enhanced: what is no sum would pass over that, and is refused."""

    @property
    def row_scale(self) -> Tensor | None:
        """How many edges of the whole graph each edge of a row stands for [num_dst]; None: see edge_scale."""
        return None

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate; sums and means estimate the whole graph's."""
        if not how.adds:
            self.need_sums(f"the {how.reduce} of neighbours")
        if how.adds and self.edge_scale is not None:
            how = how.weighed(self.edge_scale, h.dtype)
        elif how.adds and self.row_scale is not None:
            scale = self.row_scale.to(_wide(h.dtype))
            how = replace(how, dst_scale=scale if how.dst_scale is None else how.dst_scale * scale)
        return super()._aggregate(h, how)

    def _propagate(self, how: Propagation) -> Tensor:
        """Return the reduced messages; sums and means estimate the whole graph's."""
        if not how.adds:
            self.need_sums(f"the {how.reduce} of messages")
        elif self.edge_scale is None:  # one number per row, none per edge: the results are weighed
            return times_rows(self._reduce_messages(how), self.row_scale)
        return super()._propagate(how)

    def attend(self, *args: Any, **options: Any) -> Tensor:
        """Return the attention over the edges there are, which normalises itself."""
        self.need_sums("attention")
        return super().attend(*args, **options)

    def need_sums(self, what: str) -> None:
        """Refuse what would pass over an enhanced diagonal."""
        if self.enhanced:
            raise InputError(
                f"enhance adds to the diagonal of sums and means over neighbours, the model needs {what}; "
                "use enhance = 0, or layers such as gcn"
            )

    def multiplicity(self) -> Tensor | None:
        """Return how many edges of the whole graph each edge stands for, [E]; None: itself."""
        if self.edge_scale is not None or self.row_scale is None:
            return self.edge_scale
        return self.row_scale[self.edge_dst]


class SampledBlock(Scaled):
    """Drawn edges into the first `num_dst` of the rows; those of a type may lie in several ranges."""

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_src: int,
        edge_scale: Tensor | None = None,
        row_scale: Tensor | None = None,
        seen_degree: Degree | None = None,
        node_types: Sequence[str] = ("node",),
        node_offsets: Sequence[int] = (0,),
        enhanced: bool = False,
        **parts: Any,
    ) -> None:
        super().__init__(indptr, indices, num_src=num_src, **parts)
        self.enhanced = enhanced
        self._seen_degree, self.by_time = seen_degree, seen_degree is not None
        self._node_types, self._node_offsets = tuple(node_types), tuple(node_offsets)
        self.edge_scale = edge_scale
        self._row_scale = row_scale

    @property
    def row_scale(self) -> Tensor | None:
        if self.edge_scale is not None or self._row_scale is not None:
            return self._row_scale
        return self.cached("row_scale", self._degree_by_drawn)

    def _degree_by_drawn(self) -> Tensor:
        drawn = self.indptr[1:] - self.indptr[:-1]
        return self.in_degree("dst").double().div_(drawn.clamp(min=1)).float()

    def typed_rows(self, rows: Rows = "src") -> list[tuple[str, slice]]:
        """Return (node type, range of rows) in the order of rows."""
        return self.cached(("typed", rows), lambda: self._runs(rows))

    def type_ranges(self, rows: Rows = "src") -> dict[str, slice]:
        """Return the range of rows of each node type, where each lies in one; else use `typed_rows`."""
        ranges = {kind: slice(0, 0) for kind in self._node_types}
        for kind, run in self.typed_rows(rows):
            if ranges[kind].stop:
                raise GraphError(f"rows of type {kind!r} lie in several ranges of a sample; use typed_rows()")
            ranges[kind] = run
        return ranges

    def by_relation(self) -> RelationBlock:
        return self.cached("by_relation", lambda: SampledRelations(self))

    def _runs(self, rows: Rows) -> list[tuple[str, slice]]:
        count = self.num_src if rows == "src" else self.num_dst
        if len(self._node_types) == 1:
            return [(self._node_types[0], slice(0, count))] if count else []
        bounds = torch.tensor(self._node_offsets[1:-1], device=self.device)
        kinds = torch.bucketize(self.src_ids[:count], bounds, right=True)
        values, counts = torch.unique_consecutive(kinds, return_counts=True)
        ends = counts.cumsum(0).tolist()
        places = zip(values.tolist(), [0, *ends], ends)
        return [(self._node_types[kind], slice(start, stop)) for kind, start, stop in places]

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        seen = self._seen_degree
        if seen is None:
            return super().row_degree(direction, rows, relation, weighted)
        if direction == "out" or weighted:
            what = "weighted degrees" if weighted else "out-degrees"
            raise GraphError(f"{what} before a seed's time are not known; use a layer that needs none")
        degree = self.cached(("seen", relation), lambda: seen(relation))
        return degree[: self.num_dst if rows == "dst" else self.num_src]

    def relation_in_degree(self) -> Tensor:
        source, kinds = self.degree_source, self.edge_type
        counts = getattr(source, "degree_in_relations", None)
        if counts is None or kinds is None or self._seen_degree is not None or self.padded:
            return super().relation_in_degree()
        ids = self._src_ids if self._dst_ids is None else self._dst_ids
        assert ids is not None, "a sample knows its nodes"
        degrees: Tensor = counts(ids[self.edge_dst], kinds)
        return degrees

    def only_relation(self, relation: int) -> Block:
        plain, chosen = super().only_relation(relation), self.relation_edges(relation)
        return SampledBlock(
            plain.indptr,
            plain.indices,
            num_src=self.num_src,
            edge_scale=None if self.edge_scale is None else self.edge_scale[chosen],
            row_scale=self.row_scale,
            seen_degree=None if self._seen_degree is None else self._degree_in(relation),
            node_types=self._node_types,
            node_offsets=self._node_offsets,
            src_ids=self.src_ids,
            edge_ids=plain.edge_ids,
            edge_data=self.edge_data,
            degrees=plain.degree_source,
            parent=self,
            enhanced=self.enhanced,
        )

    def _degree_in(self, relation: int) -> Degree:
        return lambda _: self.in_degree("src", relation)


class SampledRelations(Scaled, RelationBlock):
    """The drawn edges with a source row for each (relation, source) pair."""

    def __init__(self, block: Scaled) -> None:
        RelationBlock.__init__(self, block)
        self.edge_scale, self.enhanced = block.edge_scale, block.enhanced

    @property
    def row_scale(self) -> Tensor | None:
        """That of the block it was made from: the destinations are the same."""
        return self._whole.row_scale if isinstance(self._whole, Scaled) else None


def block_of(
    graph: EdgeView, indptr: Tensor, indices: Tensor, *, nodes: Tensor, edge_ids: Tensor, **more: Any
) -> SampledBlock:
    """Return the block of some edges of a graph among the rows `nodes`; `more` is what a sample adds."""
    kind: type[SampledBlock] = more.pop("kind", SampledBlock)
    return kind(
        indptr,
        indices,
        num_src=nodes.shape[0],
        node_types=graph.node_types,
        node_offsets=graph.node_offsets,
        src_ids=nodes,
        edge_ids=edge_ids,
        edge_type=None if graph.edge_type is None else graph.edge_type[edge_ids],
        num_relations=graph.num_relations,
        edge_data=graph.edge_data,
        **{"degrees": graph, **more},
    )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
