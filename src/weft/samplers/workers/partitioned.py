"""Sampled neighbourhoods of a graph that several workers hold: the batches of one process, a share each.

The owner of a node draws for it, by the same keys as one process would; ids and drawn edges travel hop by
hop in batched exchanges, features and degrees of all rows at the end. A worker holds two numbers for every
node of the graph: who owns it, and where its edges begin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.rows import owners
from weft.errors import GraphError, InputError
from weft.graph.degrees import Degrees, RowDegrees, edge_destinations, entries_of_rows
from weft.graph.message.block import Block
from weft.graph.parts.shard import Shard
from weft.graph.sparse import SparseFeatures
from weft.samplers.base import Batch, Sampler, as_seeds, samplers
from weft.samplers.core.block import SampledBlock
from weft.samplers.core.hidden import HiddenPairs
from weft.samplers.core.reference import checked_seeds, find_rows
from weft.samplers.core.request import OwnerDrawing, Slots, request_of
from weft.samplers.core.slices import take_rows
from weft.samplers.core.temporal import Times, check_times, refuse_times
from weft.samplers.neighbor import Fanout, run
from weft.samplers.workers.hidden_part import HiddenPart
from weft.samplers.workers.part_block import BatchDegrees, block_of_part
from weft.samplers.workers.reverses import mirrored_on_workers
from weft.samplers.workers.row_requests import LABEL, RowRequests
from weft.samplers.workers.worker_edges import WorkerEdges

_FEATURES = Label("features")


def on_workers(kind: str) -> str:
    """Return why workers who hold a graph together cannot draw by a sampler, and which can."""
    able = ", ".join(name for name in samplers.names() if samplers[name].on_workers)
    return f"sampler: {kind!r} draws from a whole graph, this one is in parts; use one of {able}"


class FeatureSource(Protocol):
    """Where batches read features: a store, or one for each node type."""

    def gather(self, ids: Tensor) -> Any:
        """Return the rows of global ids, in their order; by node type where there are several."""


class PartitionedSampler(Sampler):
    """Draw up to `fanout[i]` incoming edges of each row in hop i, whoever holds them; -1 takes all.

    All members of the group call `sample` together, each with its own seeds, whoever owns them, or none. The
    draws are those of the sampler `kind`, with its `options`, of the whole graph. `features` are read by
    global id; without them each member asks the owners of its rows.
    """

    block_type: ClassVar[type[SampledBlock]] = SampledBlock
    """What the blocks of a batch are."""
    together: ClassVar[bool] = True
    graph: WorkerEdges

    def __init__(
        self,
        shard: Shard,
        group: Group,
        fanout: Fanout = (15, 10, 5),
        *,
        kind: str = "neighbor",
        seed: int = 0,
        features: FeatureSource | None = None,
        label: Label = _FEATURES,
        **options: Any,
    ) -> None:
        self.shard, self.held, self.group, self.features, self.label = shard, shard, group, features, label
        if not samplers[kind].on_workers:
            raise InputError(on_workers(kind))
        edges = WorkerEdges(shard)
        self._drawing = partial(cast(Any, samplers[kind]), fanout=fanout, seed=seed, **options)
        self.draws: OwnerDrawing = self._drawing(edges)
        if self.draws.worker_obstacle():
            raise InputError(self.draws.worker_obstacle())
        super().__init__(edges, seed=seed, resample=self.draws.resample)
        self.slots = _with_ids(self.draws, shard)
        self.owner = owners(shard.node_ids, shard.num_nodes, group, label=LABEL)
        self.near = self.owner  # whom this member asks

    @property
    def drawn_by(self) -> OwnerDrawing:
        """What the owner of a node draws by."""
        return self.draws

    def owns(self, nodes: Tensor) -> Tensor:
        """Return which of some nodes this member owns, [n] bool."""
        return self.owner[nodes] == self.group.rank

    def mirrored(self) -> Tensor:
        """Return what `weft.graph.ends.mirrored` does of the whole graph, [R] bool; all members call it."""
        return mirrored_on_workers(WorkerEdges(self.shard), self.owner, self.group)

    def hold(self, shard: Shard, nodes: Tensor) -> None:
        """Draw from `shard` from now on, which has these nodes of others too, and ask nobody for them."""
        self.held, self.near = shard, self.owner.clone()
        # `owner` stays what it was: who owns a node decides whose loss it is, who holds a copy only whom to
        # ask.
        self.near[nodes] = self.group.rank
        self.graph = WorkerEdges(shard)
        self.draws = self._drawing(self.graph)
        self.slots = _with_ids(self.draws, shard)

    def sample(
        self,
        seeds: Any,
        epoch: int = 0,
        step: int = 0,
        *,
        times: Any = None,
        hidden: HiddenPairs | None = None,
    ) -> Batch:
        """Return this member's share of a batch: the neighbourhood of its seeds, with y if it owns them.

        `hidden`, the same on all members, are pairs of nodes: the batches are those of a graph without the
        edges between them, in draws and in degrees. A temporal batch has `times` [n], by default the node
        data's `time`.
        """
        gone = None
        if hidden is not None:
            gone = HiddenPart(self.graph, hidden, self.owner, self.group, label=LABEL)
        reached = self.reach(seeds, epoch, step, times=times, hidden=gone)
        rows, requests, hops, num_seeds = reached.rows, reached.requests, reached.hops, reached.num_seeds
        degrees = BatchDegrees(self.degrees_of(requests, gone), self._seen_degrees(requests, gone))
        blocks = [self._block(*hop, rows, degrees) for hop in reversed(hops)]
        values = {"x": self.features_of(requests, rows), "y": self.shard.of_target("y", rows[:num_seeds])}
        moment: dict[str, Any] = {"epoch": epoch, "step": step, "data": values, "seed_of": reached.seed_of}
        return PartitionedBatch(self.graph, blocks, rows, num_seeds=num_seeds, requests=requests, **moment)

    def reach(
        self,
        seeds: Any,
        epoch: int = 0,
        step: int = 0,
        *,
        times: Any = None,
        hidden: HiddenPart | None = None,
    ) -> "Reached":
        """Return the rows and the drawn edges of a batch, without what is known of its rows."""
        first_rows, count = as_seeds(self.graph, seeds), self.shard.num_nodes
        timed = self._times is not None
        checked_seeds(first_rows, count, distinct=not timed)
        keys, requests, hops = self.draws.keys(epoch, step), RowRequests(self.near, self.group), []
        tell, group = self._teller(first_rows, times)
        # Rows are known by one number: the node, or seed · nodes + node, or that of the seed's group.
        rows = first_rows + group * count if timed else first_rows
        known = 0
        # A hop is one exchange of ids and one of edges: the owner of a row draws for everybody who asks, by
        # the row's own key, and so draws for all of them the same.
        for hop in range(self.draws.hops):
            requests.add(*tell(rows[known:]))
            known = len(rows)
            drawn = self._ask(requests, hop, keys, hidden)
            sources = drawn.src
            if timed:
                sources = sources + (rows // count * count)[edge_destinations(drawn.indptr)]
            rows, local = self._find(rows, sources)
            hops.append((drawn, local, len(rows)))
        requests.add(*tell(rows[known:]))
        # The rows of the last hop are asked for as well: nothing is drawn for them, but their features are
        # read.
        seed_of = rows // count if timed and not self.draws.shared else None
        return Reached(rows % count if timed else rows, len(first_rows), requests, hops, seed_of)

    # Edges

    def _teller(self, seeds: Tensor, times: Any) -> tuple[Callable[[Tensor], tuple[Tensor, ...]], Tensor]:
        """Return what tells of rows their nodes and, where times matter, each one's seed and its time.

        Beside it whose rows each seed has: its own, or those of all seeds of its time.
        """
        own = torch.arange(len(seeds))
        if self._times is None:
            refuse_times(times)
            return lambda rows: (rows,), own
        times, count = (
            self._seed_times(seeds) if times is None else torch.as_tensor(times),
            self.shard.num_nodes,
        )
        check_times(seeds, times)
        if self.draws.shared:
            times, own = torch.unique(times, return_inverse=True)
        return lambda rows: (rows % count, seeds[rows // count], times[rows // count]), own

    def _ask(self, requests: RowRequests, hop: int, keys: Any, hidden: HiddenPart | None = None) -> "_Drawn":
        """Return what the owners of the rows asked for drew in one hop."""
        gone = {"hidden": self._slots_of(hidden)}
        answers = [
            self._draw(ids, hop, keys, **gone, **self._seen(requests, i))
            for i, ids in enumerate(requests.ids)
        ]
        return self.answered(requests, answers)

    def answered(self, requests: RowRequests, answers: "list[_Drawn]") -> "_Drawn":
        names = list(self.shard.edge_data)
        joined = [torch.cat(parts) for parts in zip(*(answer.columns(names) for answer in answers))]
        indptr, columns = requests.ragged(torch.cat([answer.counts for answer in answers]), joined)
        scaled = answers[0].scale is not None
        return _Drawn.of(indptr, columns, names, scaled=scaled, typed=self._typed)

    def all_edges_of(self, ids: Tensor) -> "_Drawn":
        """Return all edges into own nodes, in the order of their ids."""
        indptr, edges = entries_of_rows(self.graph.indptr, ids)
        kinds, data = self.held.edge_type, self.held.edge_data
        return _Drawn(
            indptr,
            self.graph.indices[edges].long(),
            self.held.edge_ids[edges],
            None,
            None if kinds is None else kinds[edges],
            {name: value[edges] for name, value in data.items()},
        )

    def _seen(self, requests: RowRequests, member: int) -> dict[str, Tensor]:
        """Return by which seed, and until when, the rows are seen that a member asked for."""
        if self._times is None:
            return {}
        time = self._times.rank_of(requests.told(1)[member])
        return {"seed_key": requests.told(0)[member], "seed_time": time}

    def _slots_of(self, hidden: HiddenPart | None) -> Tensor | None:
        """Return the slots held here that are as if they were not there."""
        return self.draws.hidden_slots(None if hidden is None else hidden.edges)

    def _draw(self, ids: Tensor, hop: int, keys: Any, **seen: Tensor | None) -> "_Drawn":
        """Return what is drawn for own nodes in one hop, with what this member knows of the edges."""
        sample = run(request_of(self.draws, self.slots, ids, keys, slice(hop, hop + 1), **seen))
        (edges,) = sample.hops
        places = torch.searchsorted(self.held.edge_ids, edges.edge_ids) if self._looks_up else None
        scale = torch.zeros(0) if self._scaled else None  # of no rows the core says nothing
        if edges.scale is not None:
            local = edges if places is None else replace(edges, edge_ids=places)
            scale = self.draws.scale_of(local)
        kinds = self.held.edge_type
        return _Drawn(
            edges.indptr,
            sample.nodes[edges.indices.long()],
            edges.edge_ids,
            scale,
            None if kinds is None or places is None else kinds[places],
            {} if places is None else {name: value[places] for name, value in self.held.edge_data.items()},
        )

    @property
    def _scaled(self) -> bool:
        """Whether each drawn edge says how many it stands for."""
        return self.slots.scaled or self.draws.scales

    @property
    def _times(self) -> Times | None:
        return self.draws.times

    @property
    def _typed(self) -> bool:
        return self.shard.edge_type is not None

    @property
    def _looks_up(self) -> bool:
        """Whether anything is known of an edge beyond its ends."""
        return self._typed or self.draws.weight is not None or bool(self.shard.edge_data)

    def _find(self, rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return all rows, new ones at the end, and the row of each id."""
        if len(self.shard.node_types) > 1 or self._times is not None:
            nodes, local = find_rows(rows.numpy(), ids.numpy(), self.shard.node_offsets)
            return torch.from_numpy(nodes), torch.from_numpy(local)
        # The kernel numbers nodes as they first appear; of several types new rows have an order besides.
        distinct, places = kernels.relabel(torch.cat([rows, ids]))
        return distinct, places[len(rows) :]

    def _block(
        self, drawn: "_Drawn", local: Tensor, num_src: int, nodes: Tensor, degrees: "BatchDegrees"
    ) -> Block:
        shard = self.shard
        columns = (drawn.edge_ids, drawn.scale, drawn.edge_type, list(drawn.data.values()))
        nodes = nodes[:num_src]
        known: dict[str, Any] = {"nodes": nodes, "degrees": degrees, "seen_degree": degrees.seen(num_src)}
        return block_of_part(shard, drawn.indptr, local.int(), *columns, **known, kind=self.block_type)

    # Rows

    def own_rows(self, ids: Tensor) -> Tensor:
        return torch.searchsorted(self.held.node_ids, ids)

    def features_of(self, requests: RowRequests, nodes: Tensor) -> Any:
        shard = self.held
        if self.features is not None:
            return self.features.gather(nodes)
        if len(shard.node_types) == 1:
            x = shard.node_data[shard.node_types[0]].get("x")
            return (
                None if x is None else _bring(requests, x, self.own_rows(torch.cat(requests.ids)), self.label)
            )
        # Widths differ by type, so each has an exchange of its own; a member without a row of it takes part.
        features, ranges = {}, shard.type_ranges()
        for kind, first, last in zip(shard.node_types, shard.node_offsets, shard.node_offsets[1:]):
            if "x" in shard.node_data[kind]:
                chosen = requests.only(first, last, nodes)
                rows = self.own_rows(torch.cat(chosen.ids)) - ranges[kind].start
                features[kind] = _bring(chosen, shard.node_data[kind]["x"], rows, self.label)
        return features

    def _seed_times(self, seeds: Tensor) -> Tensor:
        shard = self.shard
        if "time" not in shard.node_data[shard.target_type]:
            raise GraphError(f"temporal sampling needs node data 'time' of {shard.target_type!r}")
        times = shard.of_target("time", seeds)
        if times is None:
            raise GraphError("times: others own some of the seeds, whose times are not known here: give them")
        return times

    def _seen_degrees(
        self, requests: RowRequests, hidden: HiddenPart | None = None
    ) -> "dict[int | None, Tensor] | None":
        """Return the degrees of all rows as their seeds see them, by relation where fanouts are."""
        if self._times is None:
            return None
        ids, ranks = torch.cat(requests.ids), self._times.rank_of(torch.cat(requests.told(1)))
        columns, gone = self._times.columns, self._slots_of(hidden)
        seen = [self._times.degree(ids, ranks, each, gone) for each in columns]
        counts = requests.fixed(torch.stack(seen, 1))
        return dict(zip(columns, counts.unbind(1)))

    def degrees_of(self, requests: RowRequests, hidden: HiddenPart | None = None) -> Degrees:
        ids = torch.cat(requests.ids)
        own = self.held.degrees.rows(self.own_rows(ids))
        own = own if hidden is None else hidden.degrees(ids, own)
        both = (own.into, own.out_of)
        # Both directions in one message: a batch waits for the slowest member at every exchange.
        count = requests.fixed(torch.stack([each.count for each in both], 1))
        weights = [each.weight for each in both if each.weight is not None]
        weight = requests.fixed(torch.stack(weights, 1)) if weights else None
        into, out_of = (
            _row_degrees(requests, each, count[:, i], None if weight is None else weight[:, i])
            for i, each in enumerate(both)
        )
        return Degrees(into, out_of)


class PartitionedBatch(Batch):
    """A member's share of a batch; `requests` knows which of its rows came from whom, hop by hop."""

    def __init__(self, *args: Any, requests: RowRequests, **options: Any) -> None:
        super().__init__(*args, **options)
        self.requests = requests


def _with_ids(draws: OwnerDrawing, shard: Shard) -> Slots:
    """Return the slots with the edges' ids in the whole graph: weighted draws are keyed by them."""
    order = draws.slots.edge_map
    return replace(draws.slots, edge_map=shard.edge_ids if order is None else shard.edge_ids[order])


@dataclass(frozen=True, eq=False)
class Reached:
    """What a member drew for its seeds."""

    rows: Tensor
    """[n] int64 global, seeds first."""
    num_seeds: int
    requests: RowRequests
    hops: "list[tuple[_Drawn, Tensor, int]]"
    """Edges, the rows of their sources, and how many rows there are, the seeds' hop first."""
    seed_of: Tensor | None
    """[n] place of the seed that a row belongs to, where rows are (seed, node) pairs."""


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The edges drawn for some rows in one hop."""

    indptr: Tensor
    src: Tensor
    """[e] int64 global."""
    edge_ids: Tensor
    scale: Tensor | None
    edge_type: Tensor | None
    data: dict[str, Tensor]

    @property
    def counts(self) -> Tensor:
        return self.indptr.diff()

    def columns(self, names: Sequence[str]) -> list[Tensor]:
        """Return all that is said of edges, in a fixed order."""
        rest = [each for each in (self.scale, self.edge_type) if each is not None]
        return [torch.stack([self.src, self.edge_ids], 1), *rest, *(self.data[name] for name in names)]

    @staticmethod
    def of(
        indptr: Tensor, columns: list[Tensor], names: Sequence[str], *, scaled: bool, typed: bool
    ) -> "_Drawn":
        """Return what `columns` gave."""
        ends, rest = columns[0], columns[1:]
        scale = rest.pop(0) if scaled else None
        kinds = rest.pop(0) if typed else None
        src, edge_ids = ends.unbind(1)
        return _Drawn(indptr, src, edge_ids.contiguous(), scale, kinds, dict(zip(names, rest)))


def _bring(requests: RowRequests, x: Any, rows: Tensor, label: Label) -> Any:
    """Return the features that this member asked for; it answers with its own `rows`."""
    part = take_rows(x, rows)
    if not isinstance(part, SparseFeatures):
        return requests.fixed(part, label=label)
    indptr, (columns, values) = requests.ragged(part.indptr.diff(), [part.indices, part.values], label=label)
    return SparseFeatures(indptr, columns, values, (len(indptr) - 1, part.shape[1]))


def _row_degrees(
    requests: RowRequests, degrees: RowDegrees, count: Tensor, weight: Tensor | None
) -> RowDegrees:
    if degrees.indptr is None or degrees.relation is None or degrees.relation_count is None:
        return RowDegrees(count, weight, None, None, None, None)
    parts = [degrees.relation, degrees.relation_count]
    parts += [] if degrees.relation_weight is None else [degrees.relation_weight]
    indptr, columns = requests.ragged(degrees.indptr.diff(), parts)
    return RowDegrees(count, weight, indptr, columns[0], columns[1], columns[2] if len(columns) > 2 else None)
