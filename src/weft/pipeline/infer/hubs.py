"""Nodes of very many edges in inference: a slice meets their edges shard by shard, and results are merged.

A slice is run on a shard of a hub's edges, where everything that it reduces over edges is written down. Then
it is run once more on the hub's own row, and what was written down of all shards, merged, is the answer to
each reduction. So no task has more edges than a piece may, and nothing but the reductions is computed twice.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError
from weft.graph.message.block import Block, Rows
from weft.graph.message.reduction import Aggregation, Propagation
from weft.graph.message.scores import Score
from weft.graph.reductions import ByRow, Contribution, RowReduction
from weft.graph.relations import RelationBlock
from weft.graph.sparse import Features
from weft.pipeline.infer.piece import Kind, PieceBlock, edge_rows, matrix, read_piece
from weft.strategies.merged.merge import Merge
from weft.strategies.merged.merging_block import MergedRelations, aggregate_part, attend_part, reduce_messages
from weft.tasks.predicted import lists
from weft.train.inference.stages import Stage

if TYPE_CHECKING:
    import pyarrow as pa

HubDegrees = Mapping[int, tuple[float, ...]]
"""The in-degree of each hub in each relation: a shard does not see it."""


class Written(Merge):
    """Takes down every result over the edges of a shard, and answers each with `unknown`."""

    def __init__(self, unknown: float = torch.nan) -> None:
        self.alone, self.unknown = False, unknown
        self.results: list[Tensor] = []

    def expand(self, own: Tensor) -> Tensor:
        """Return the rows: a shard has one, the hub's."""
        return own

    def __call__(self, kind: RowReduction, part: Contribution) -> Tensor:
        """Take down a contribution; return what is known of the whole, nothing.

        So a reduction that reads the result of another is found out.
        """
        self.results += [each.double().reshape(-1) for each in part if each is not None]
        return torch.full_like(part.value, self.unknown)


class Recalled(Written):
    """Answers each reduction with what all shards contribute, `made` [shards, numbers]."""

    def __init__(self, made: Tensor) -> None:
        super().__init__()
        self.made, self.place = made, 0

    def __call__(self, kind: RowReduction, part: Contribution) -> Tensor:
        """Return the contributions of the shards reduced, in their order."""
        value = self._of_shards(part.value)
        beside = None if part.beside is None else self._of_shards(part.beside).to(part.beside.dtype)
        rows = torch.arange(len(part.value)).repeat(len(self.made))
        by_row = ByRow.of(rows, len(part.value))
        return kind.reduced(by_row, Contribution(value, beside)).value.to(part.value.dtype)

    def _of_shards(self, like: Tensor) -> Tensor:
        """Return the next numbers of all shards: rows like these of one shard after the other."""
        start, self.place = self.place, self.place + like.numel()
        held = self.made[:, start : self.place]
        return held.reshape(len(held) * len(like), *like.shape[1:])


class HubBlock(PieceBlock):
    """Some of the edges into a hub; `merge` is given what is reduced over them, and answers."""

    whole_rows = False

    def __init__(
        self, indptr: Tensor, indices: Tensor, *, merge: Written, of_relations: HubDegrees, **parts: Any
    ) -> None:
        super().__init__(indptr, indices, **parts)
        self.merge, self._of_relations = merge, of_relations
        given = {name: parts[name] for name in ("num_src", "edge_ids", "edge_type", "num_relations")}
        self.part = Block(indptr, indices, parent=self, **given)

    def aggregates_sparse(self, h: Any) -> bool:
        """Return False: merged results are dense."""
        return False

    def by_relation(self) -> RelationBlock:
        return self.cached("by_relation", lambda: MergedRelations(self, lambda: self.merge))

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return what `Block.attend` does."""
        return attend_part(self.part, self.merge, score, value, dropout, layer)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        rows = h if isinstance(h, Tensor) else h.to_dense()
        scaled = replace(how, dst_scale=self.scale_of_rows(how, rows.dtype))
        return aggregate_part(self.part, self.merge, rows, scaled)

    def _propagate(self, how: Propagation) -> Tensor:
        return reduce_messages(self.part, self.merge, how, self)

    def only_relation(self, relation: int) -> Block:
        raise GraphError("the edges of one relation of a hub are no block of their own; use --engine torch")

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        if relation is None or self.edge_type is None:
            return super().row_degree(direction, rows, relation, weighted)
        if (direction, rows, weighted) != ("in", "dst", False):
            raise GraphError("of a hub's relations only in-degrees are known; use --engine torch")
        held = [self._of_relations[node][relation] for node in self.dst_ids.tolist()]
        return torch.tensor(held, dtype=torch.float32)


def run_shard(
    stage: Stage, kind: Kind, of_relations: HubDegrees, group: "pa.Table", *, first: bool
) -> "pa.RecordBatch":
    """Return (node, shard, made) of a shard of a hub: what a slice reduces over its edges."""
    import pyarrow as pa

    def reduced(unknown: float) -> tuple[NDArray[np.int64], Tensor]:
        written = Written(unknown)
        make = partial(HubBlock, merge=written, of_relations=of_relations)
        node, blocks, h = read_piece(stage, kind, group, first=first, make=make)
        with torch.no_grad():
            stage.run(blocks, h)
        return node, torch.cat([torch.zeros(0, dtype=torch.float64), *written.results])

    node, made = reduced(torch.nan)
    if bool(made.isnan().any()):
        _refuse(diverged=bool(reduced(0.0)[1].isnan().any()))
    columns = [pa.array(node), group.column("piece").combine_chunks()[:1], lists(made[None])]
    return pa.record_batch(columns, names=["node", "shard", "made"])


def _refuse(*, diverged: bool) -> NoReturn:
    """Say why a result over a shard is not a number: the model or its input, or else what was unknown."""
    if diverged:
        raise GraphError("the model gives values that are not numbers: its weights or the features have some")
    raise GraphError(
        "a layer reduces over edges what it made of an earlier reduction; the edges of a hub cannot "
        "be met in shards then: use --engine torch, or more --memory"
    )


def merge_shards(
    stage: Stage, kind: Kind, of_relations: HubDegrees, group: "pa.Table", *, first: bool
) -> "pa.RecordBatch":
    """Return (node, h) of a hub after a slice, from one row per shard: (made, and the hub's own row)."""
    import pyarrow as pa

    group = group.sort_by("shard")  # merged in their order, so the result is the same however they came
    recalled = Recalled(matrix(group, "made", torch.float64))
    own = group.slice(0, 1).append_column("hop", pa.array([0])).append_column("part", pa.array([0]))
    make = partial(HubBlock, merge=recalled, of_relations=of_relations)
    node, blocks, h = read_piece(stage, kind, own, first=first, make=make, edges=edge_rows(kind))
    with torch.no_grad():
        made = stage.run(blocks, h)
    assert recalled.place == recalled.made.shape[1], "both runs make the same reductions"
    return pa.record_batch([pa.array(node), lists(made)], names=["node", "h"])
