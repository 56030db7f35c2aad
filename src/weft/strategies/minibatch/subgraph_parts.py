"""Subgraphs of a graph that several workers hold: each computes the rows that it owns, as on the whole graph.

The nodes of a step are known to all workers. Each cuts its own ones, and the edges among them, out of its
shard; rows of others that these edges read travel in every layer, and their gradients back. So every row is
computed once, and layers, attention and batch normalisation give what they give in one process.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan
from weft.errors import GraphError
from weft.exchanges.exact import Exact
from weft.graph.degrees import entries_of_rows
from weft.graph.message.block import Rows
from weft.graph.parts.shard import Shard
from weft.graph.relations import RelationBlock
from weft.graph.sparse import SparseFeatures
from weft.samplers.base import Batch, Sampler
from weft.samplers.cluster import no_loops
from weft.samplers.core.block import SampledRelations, Scaled
from weft.samplers.core.in_edges import InEdges
from weft.samplers.core.slices import take_rows
from weft.samplers.core.subgraph import Subgraph
from weft.samplers.saint import Chances, SaintDraws
from weft.samplers.workers.worker_edges import WorkerEdges
from weft.strategies.halo.block import HaloBlock
from weft.strategies.local import LocalGraph

_SAMPLE = Label("sample")
_DEGREES = Label("degrees")


class PartBlock(Scaled, HaloBlock):
    """The edges of a subgraph into a worker's rows of it; `counted` has degrees be those in the subgraph."""

    def __init__(
        self, shard: Shard, exchange: Exact, group: Group, *, edge_scale: Tensor | None, counted: bool
    ) -> None:
        super().__init__(shard, exchange, group)
        self.edge_scale, self.counted = edge_scale, counted

    def by_relation(self) -> RelationBlock:
        return self.cached("by_relation", lambda: SampledRelations(self))

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        if not self.counted:
            return super().row_degree(direction, rows, relation, weighted)
        asked = (direction, relation, weighted)
        own = self.cached(("own", *asked), lambda: self._own_count(*asked))
        if rows == "dst":
            return own
        return self.cached(("src", *asked), lambda: self._with_halo(own))

    def _own_count(self, direction: str, relation: int | None, weighted: bool) -> Tensor:
        """Count the edges of the subgraph at own rows; those out of them other workers hold too."""
        counts, plan = self.counted_degree(direction, relation, weighted), self.exchange.plan
        own, halo = counts[: self.num_own], counts[self.num_own :]
        if direction == "in":
            return own
        return own + plan.sum_at_owner(plan.reversed().pull(self.group, halo, label=_DEGREES).wait())

    def _with_halo(self, own: Tensor) -> Tensor:
        return torch.cat([own, self.exchange.plan.pull(self.group, own, label=_DEGREES).wait()])


class SubgraphPart(Subgraph):
    """A worker's rows of a subgraph; `rows` are those of its seeds, `count` has the seeds of all workers."""

    def __init__(self, block: PartBlock, rows: Tensor, count: int, **options: Any) -> None:
        graph = options.pop("graph")
        super().__init__(graph, [block], block.shard.node_ids, num_seeds=0, **options)
        self.seeds = self.nodes[rows]
        self.rows, self.count = rows, count

    def fetch(self, *, pin: bool = False) -> "SubgraphPart":
        """Return the batch: its features are there, and what else a step needs all workers make together."""
        return self


class Pieces:
    """Cuts subgraphs out of a worker's shard. All workers call `cut` together, in a lane of their own.

    `seeds` are the own rows that are trained on.
    """

    def __init__(
        self, graph: LocalGraph, plan: HaloPlan, group: Group, lane: Group, clock: Tensor, seeds: Tensor
    ) -> None:
        self.graph, self.plan, self.group, self.lane, self.clock = graph, plan, group, lane, clock
        self.shard, self.back = graph.shard, plan.reversed()
        self.is_seed = torch.zeros(len(self.shard.node_ids), dtype=torch.bool)
        self.is_seed[seeds] = True

    def edges_among(self, own: Tensor, halo: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the own rows that are chosen, pointers, and the edges into them from chosen rows."""
        rows = own.nonzero().flatten()
        indptr, edges = entries_of_rows(self.shard.indptr, rows)
        inside = torch.cat([own, halo])[self.shard.indices[edges].long()]
        before = torch.cat([indptr.new_zeros(1), inside.long().cumsum(0)])
        return rows, before[indptr], edges[inside]

    def cut(
        self,
        own: Tensor,
        halo: Tensor,
        *,
        count: int,
        counted: bool,
        scale: Callable[[Tensor, Tensor], Tensor] | None = None,
        **moment: Any,
    ) -> SubgraphPart:
        """Return this worker's part of the subgraph of chosen rows: masks of own rows and of the halo.

        `scale(dst_ids, edges)` gives what edges of the shard count in sums, where they count differently.
        """
        shard = self.shard
        rows, indptr, edges = self.edges_among(own, halo)
        sources = shard.indices[edges].long()
        read = torch.zeros(len(halo), dtype=torch.bool)
        read[sources[sources >= len(own)] - len(own)] = True
        plan, row_of = self._plan(own, read)
        kept = torch.cat([own, read]).nonzero().flatten()
        part = replace(
            shard,
            node_ids=shard.node_ids[rows],
            node_part=shard.node_part[rows],
            halo_ids=shard.halo_ids[read],
            halo_part=shard.halo_part[read],
            indptr=indptr,
            indices=row_of[sources].to(shard.indices.dtype),
            edge_ids=shard.edge_ids[edges],
            edge_type=None if shard.edge_type is None else shard.edge_type[edges],
            edge_data={name: value[edges] for name, value in shard.edge_data.items()},
            degrees=shard.degrees if counted else shard.degrees.rows(kept),
            node_data={},
        )
        dst = torch.repeat_interleave(part.node_ids, indptr.diff(), output_size=len(edges))
        scales = None if scale is None else scale(dst, edges)
        exchange = Exact(plan, self.group, self.clock)
        block = PartBlock(part, exchange, self.group, edge_scale=scales, counted=counted)
        x = self._features(rows)
        if isinstance(x, Tensor | SparseFeatures):
            block.mark_constant(x)  # sparse ones travel as they are
        seeds = self.is_seed[rows].nonzero().flatten()
        data = {"x": x, "y": self.graph.known_of(rows[seeds])}
        return SubgraphPart(block, seeds, count, graph=self.graph, data=data, **moment)

    def _plan(self, own: Tensor, read: Tensor) -> tuple[HaloPlan, Tensor]:
        """Return the plan of the halo rows that are read, and the place of each row among those kept."""
        # An owner cannot tell which of its rows a step's edges read elsewhere: readers mark them.
        asked = self.back.pull(self.lane, read.to(torch.uint8), label=_SAMPLE).wait().bool()
        row_of = torch.cat([own, read]).long().cumsum(0) - 1
        chosen = self.plan.select(read, asked)
        return replace(chosen, num_rows=int(own.sum()), send_rows=row_of[chosen.send_rows]), row_of

    def _features(self, rows: Tensor) -> Any:
        data, types = self.shard.node_data, self.shard.node_types
        if len(types) == 1:
            x = data[types[0]].get("x")
            return None if x is None else take_rows(x, rows)
        ranges = self.shard.type_ranges()
        inside = {kind: rows[(rows >= r.start) & (rows < r.stop)] - r.start for kind, r in ranges.items()}
        return {kind: take_rows(data[kind]["x"], inside[kind]) for kind in types if "x" in data[kind]}


class ClusterParts(Sampler):
    """A worker's part of clusters, which are the parts that the graph was cut into."""

    neighbourhoods = False

    def __init__(self, pieces: Pieces, *, seed: int, enhance: float = 0.0) -> None:
        super().__init__(pieces.graph, seed=seed)
        self.pieces, self.enhance = pieces, enhance
        shard = pieces.shard
        counts = torch.bincount(shard.node_part[pieces.is_seed].long(), minlength=shard.num_parts)
        self.seeds_of = pieces.lane.all_reduce(counts, label=_SAMPLE).wait()  # of each cluster
        if enhance:
            self._check_loops()

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return this worker's rows of the subgraph of these clusters."""
        shard, chosen = self.pieces.shard, torch.zeros(len(self.seeds_of), dtype=torch.bool)
        chosen[seeds] = True
        own, halo = chosen[shard.node_part.long()], chosen[shard.halo_part.long()]
        count = int(self.seeds_of[chosen].sum())
        scale = self._scale if self.enhance else None
        part = self.pieces.cut(own, halo, count=count, counted=True, scale=scale, epoch=epoch, step=step)
        cast(PartBlock, part.blocks[0]).enhanced = self.enhance > 0
        return part

    def _scale(self, dst_ids: Tensor, edges: Tensor) -> Tensor:
        shard = self.pieces.shard
        return 1.0 + self.enhance * (shard.row_ids[shard.indices[edges].long()] == dst_ids)

    def _check_loops(self) -> None:
        shard = self.pieces.shard
        dst = torch.repeat_interleave(shard.indptr.diff(), output_size=len(shard.indices))
        with_loop = len(torch.unique_consecutive(dst[shard.indices == dst]))
        of_all = int(self.pieces.lane.all_reduce(torch.tensor(with_loop), label=_SAMPLE).wait())
        if of_all < shard.num_nodes:
            raise GraphError(no_loops(shard.num_nodes - of_all))


class SaintParts(Sampler):
    """A worker's part of random subgraphs. Workers draw them together, and all know their nodes."""

    neighbourhoods = False

    def __init__(self, pieces: Pieces, *, seed: int, coverage: int, **options: Any) -> None:
        super().__init__(pieces.graph, seed=seed, resample="step")
        self.pieces = pieces
        lane, edges = pieces.lane, WorkerEdges(pieces.shard)

        def together(values: Tensor) -> Tensor:
            return lane.all_reduce(values, label=_SAMPLE).wait()

        self.draws = SaintDraws(InEdges(edges.indptr, edges.indices, together), **options)
        # Every worker knows all seeds: a loss is a mean over those that a step meets, wherever they lie.
        marked = torch.zeros(edges.num_nodes, dtype=torch.int64)
        marked[pieces.shard.node_ids[pieces.is_seed]] = 1
        self.is_seed = together(marked).bool()
        self.chances = Chances(
            self.draws,
            lambda nodes: pieces.edges_among(*self._masks(nodes))[2],
            num_edges=len(pieces.shard.indices),
            coverage=coverage,
            seed=seed,
        )

    def sample(self, seeds: Any = (), epoch: int = 0, step: int = 0) -> Batch:
        """Return this worker's rows of the subgraph of a step."""
        nodes = self.draws.nodes(self.key(epoch, step, 0))
        count = int(self.is_seed[nodes].sum())
        own, halo = self._masks(nodes)
        moment = {"epoch": epoch, "step": step}
        part = self.pieces.cut(own, halo, count=count, counted=False, scale=self.chances.edge_scale, **moment)
        part.weight = self.chances.loss_weight(part.seeds, int(self.is_seed.sum()))
        return part

    def _masks(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        shard = self.pieces.shard
        return torch.isin(shard.node_ids, nodes), torch.isin(shard.halo_ids, nodes)
