"""The block of a part of edges: sources and destinations are the replicas, held here, of the edges' ends.

Every replica of a node is computed by its rank; one of them, the root, counts. A result over the edges here
is sent to the root, merged there, and the whole sent back to the leaves, so that all replicas go on alike.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange
from weft.exchanges.features import fetch_halo
from weft.exchanges.none import Silent
from weft.graph.block import Rows
from weft.graph.shard import Shard
from weft.graph.sparse import SparseFeatures
from weft.strategies.merge import Merge
from weft.strategies.merging_block import MergingBlock


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


class ReplicaMerge(Merge):
    """Merges results at the roots and hands them to the leaves; the caller holds all replicas.

    `backward` "local" passes the gradient of a row to the result computed here as it is, and nothing to the
    other ranks: what the published system does. With the exchange `none` results stay what they are.
    """

    def __init__(
        self, replicas: Replicas, spread: Exchange, collect: Exchange, *, backward: str = "exact"
    ) -> None:
        super().__init__(replicas.plan, spread, collect)
        self.replicas = replicas
        self._own, self._others = replicas.roots, replicas.leaves
        self.local = backward == "local"
        self.silent = isinstance(collect, Silent)

    def expand(self, own: Tensor) -> Tensor:
        """Return the rows: the caller has all of them."""
        return own

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum of all results of each row."""
        return self._through(super().sum, part)

    def extreme(self, value: Tensor, count: Tensor, *, largest: bool) -> Tensor:
        """Return the largest or smallest of all values of each row."""
        merge = super().extreme
        return self._through(lambda rows: merge(rows, count, largest=largest), value)

    def softmax(self, out: Tensor, mass: Tensor) -> Tensor:
        """Return the mean of all results weighted by exp(mass)."""
        merge = super().softmax
        return self._through(lambda rows: merge(rows, mass), out)

    def _through(self, merge: Callable[[Tensor], Tensor], part: Tensor) -> Tensor:
        if self.silent or not self.local:
            return part if self.silent else merge(part)
        with torch.no_grad():
            merged = merge(part.detach())
        passed: Tensor = _Local.apply(part, merged)  # type: ignore[no-untyped-call]
        return passed

    def _finished(self, own: Tensor) -> Tensor:
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

    def _degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        return self.cached(
            (direction, relation, weighted), lambda: self.shard.degree(direction, relation, weighted)
        )


class _Local(torch.autograd.Function):
    """The merged rows forward, the identity on the rows of this rank backward."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, merged: Tensor) -> Tensor:
        return merged.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0], None
