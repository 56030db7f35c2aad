"""The block of a part of edges: sources and destinations are the replicas, held here, of the edges' ends.

Every replica of a node is computed by its rank; one of them, the root, counts. A result over the edges here
is sent to the root, merged there, and the whole sent back to the leaves, so that all replicas go on alike.
"""

from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo
from weft.graph.message.block import Block, Rows
from weft.graph.parts.shard import Shard
from weft.graph.reductions import Contribution, RowReduction
from weft.graph.sparse import SparseFeatures
from weft.strategies.halo.shard_block import OneRelation, ShardBlock
from weft.strategies.merged.merge import Merge
from weft.strategies.merged.merging_block import MergingBlock


class Replicas:
    """Which of the rows held here are roots, which are leaves, and the plan between them."""

    def __init__(self, shard: Shard, group: Group) -> None:
        self.is_root = torch.isin(shard.node_part, torch.tensor(shard.parts, dtype=torch.int32))
        self.roots = self.is_root.nonzero().flatten()
        leaves = (~self.is_root).nonzero().flatten()
        self.leaves = leaves[torch.argsort(shard.node_part[leaves], stable=True)]  # by (part, id)
        self.places = torch.argsort(torch.cat([self.roots, self.leaves]))
        """Where each row held stands among the roots, then the leaves."""
        split = replace(
            shard,
            cuts="nodes",
            node_ids=shard.node_ids[self.roots],
            halo_ids=shard.node_ids[self.leaves],
            halo_part=shard.node_part[self.leaves],
        )
        self.plan = HaloPlan.make(split, group)

    def to_each_leaf(self) -> HaloPlan:
        """Return the plan that brings leaves a row each, where leaves of one root differ."""
        count = len(self.plan.send_rows)
        return replace(self.plan, num_rows=count, send_rows=torch.arange(count))

    def shared_leaf_ids(self, group: Group) -> Tensor:
        """Return the ids of leaves here whose nodes have other leaves; all members call it."""
        counts = torch.bincount(self.plan.send_rows, minlength=self.plan.num_rows)
        leaves = self.plan.pull(group, counts, label=Label("plan")).wait()
        return self.plan.halo_ids[leaves > 1]


class ReplicaMerge(Merge):
    """Merges results at the roots and hands them to the leaves; the caller holds all replicas.

    `backward` "local" passes the gradient of a row to the result computed here as it is, and nothing to the
    other ranks: what the published system does.
    """

    def __init__(
        self, replicas: Replicas, spread: Exchange, collect: Exchange, *, backward: str = "exact"
    ) -> None:
        super().__init__(replicas.plan, spread, collect)
        self.replicas = replicas
        self._own, self._others = replicas.roots, replicas.leaves
        self.local = backward == "local"

    def expand(self, own: Tensor) -> Tensor:
        """Return the rows: the caller has all of them."""
        return own

    def _merged(self, kind: RowReduction, part: Contribution) -> Tensor:
        if not self.local:
            return self._at_replicas(kind, part)
        with torch.no_grad():
            merged = self._at_replicas(kind, part)
        passed: Tensor = _Local.apply(part.value, merged)  # type: ignore[no-untyped-call]
        return passed

    def _at_replicas(self, kind: RowReduction, part: Contribution) -> Tensor:
        own = super()._merged(kind, part)
        return torch.cat([own, self.spread.gather(own)]).index_select(0, self.replicas.places)

    def _finished_sparse(self, own: SparseFeatures) -> SparseFeatures:
        brought = fetch_halo(own, self.spread.whole_plan, self.spread.group)
        return cast(SparseFeatures, brought)[self.replicas.places]


class VertexCutBlock(MergingBlock):
    """The edges of a part between the replicas of their ends."""

    def __init__(self, shard: Shard, exact: Merge, *, group: Group, clock: Tensor | None = None) -> None:
        ids = shard.node_ids
        at = shard.indptr, shard.indices
        super().__init__(shard, *at, num_src=len(ids), src_ids=ids, exact=exact, group=group, clock=clock)

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        return self.cached(
            (direction, relation, weighted), lambda: self.shard.degree(direction, relation, weighted)
        )


class LocalBlock(ShardBlock):
    """The edges of a part as if there were no others: what reaches a replica here, over its degree here."""

    def __init__(self, shard: Shard, *, clock: Tensor | None = None) -> None:
        super().__init__(
            shard,
            shard.indptr,
            shard.indices,
            num_src=len(shard.node_ids),
            src_ids=shard.node_ids,
            dst_ids=shard.node_ids,
            edge_ids=shard.edge_ids,
            edge_type=shard.edge_type,
            num_relations=len(shard.edge_types),
            edge_data=shard.edge_data,
            clock=clock,
        )
        self.whole_rows = shard.num_parts == len(shard.parts)

    def only_relation(self, relation: int) -> Block:
        return OneRelation(self, relation)


class _Local(torch.autograd.Function):
    """The merged rows forward, the identity on the rows of this rank backward."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, merged: Tensor) -> Tensor:
        return merged.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0], None
