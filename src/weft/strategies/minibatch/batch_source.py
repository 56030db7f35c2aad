"""Where batches come from: a graph that this process holds, or parts of one that a group holds together.

Both draw the same batches. What a batching asks is the same of both, so it does not know which it has.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.views import GraphView
from weft.samplers.base import Batch, Sampler
from weft.samplers.cluster import ClusterSampler
from weft.samplers.loader import Loader
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.saint import SaintSampler
from weft.samplers.workers.inputs import InputSampler, PartitionedInputs
from weft.samplers.workers.partitioned import PartitionedBatch, PartitionedSampler
from weft.samplers.workers.worker_loaders import CollectiveLoader, PartitionedLoader
from weft.stores.base import Store
from weft.stores.open import as_read, open_store, with_store
from weft.stores.typed import TypedStores
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.layout import Layout
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.history_block import (
    AtOwners,
    HaloRecorder,
    Here,
    History,
    Recorder,
    Remembered,
)
from weft.strategies.minibatch.subgraph_parts import ClusterParts, Pieces, SaintParts
from weft.strategies.shared import Shared
from weft.strategies.whole import Whole

Spec = str | Mapping[str, Any]
"""A store, by name or as a table with its options."""


class BatchSource(Protocol):
    """What a batching asks, whoever holds the graph."""

    @property
    def layout(self) -> Whole | HaloParts:
        """The rows and blocks of an exact pass."""

    @property
    def in_parts(self) -> bool:
        """Whether workers hold parts of the graph."""

    @property
    def num_parts(self) -> int | None:
        """The parts that it was cut into; None: it was not."""

    @property
    def graph(self) -> GraphView:
        """The graph, or the parts of it that are here."""

    @property
    def opened(self) -> Store | TypedStores | None:
        """The store of features that was opened for this run."""

    def seed_loader(self, sampler: Any, *, batch_size: int, threads: int) -> Loader:
        """Return the loader of the neighbourhoods of training nodes, each worker's its own."""

    def number_loader(self, sampler: Sampler, numbers: int, **options: Any) -> Loader:
        """Return the loader of so many numbers, each a cluster or a random subgraph, on all workers."""

    def close(self) -> None:
        """Close the store that was opened."""

    def clusters(self, count: int, *, seed: int, enhance: float, partitioner: Spec) -> Sampler:
        """Return the sampler of the subgraphs of clusters."""

    def saint(self, **options: Any) -> SaintSampler | SaintParts:
        """Return the sampler of random subgraphs."""

    def inputs(self, fanout: Sequence[int], sums: Sequence[Tensor] | None, **options: Any) -> Sampler:
        """Return the sampler of neighbourhoods whose first layer's `sums` are known; None: it reads all."""

    def recorders(self, hops: int, history: History) -> list[Block]:
        """Return the blocks of an exact pass, of which those above the first layer fill the histories."""

    def remembered(self, history: History, batch: Batch) -> Remembered:
        """Return the histories of a batch's rows."""


class GraphSource:
    """A graph that is all here; `opened` is the store of its features, closed with it."""

    in_parts: Literal[False] = False
    num_parts: None = None

    def __init__(self, shared: Shared, graph: Graph, store: Spec | None, *, ranked: bool) -> None:
        """`ranked`: a cache holds nothing until somebody has counted what batches read."""
        opened = None if store is None else open_store(store, graph, "later" if ranked else None)
        self.opened = opened
        self.layout = Whole(shared, graph if opened is None else with_store(graph, opened), batches=True)
        self.graph = self.layout.graph

    def seed_loader(self, sampler: Any, *, batch_size: int, threads: int) -> Loader:
        """Return the loader of the neighbourhoods of training nodes, each worker's its own."""
        options: dict[str, Any] = {"batch_size": batch_size, "threads": threads, "courier": self.courier}
        return Loader(sampler, train_ids(self.layout), **options)

    def number_loader(self, sampler: Sampler, numbers: int, **options: Any) -> Loader:
        """Return the loader of so many numbers, each a cluster or a random subgraph, on all workers."""
        return Loader(sampler, torch.arange(numbers), courier=self.courier, **options)

    def close(self) -> None:
        """Close the store that was opened."""
        if self.opened is not None:
            self.opened.close()

    @property
    def courier(self) -> Any:
        """What brings batches to a GPU; None where the model is on the CPU."""
        return None if self.layout.nearby is None else self.layout.nearby.courier

    def clusters(self, count: int, *, seed: int, enhance: float, partitioner: Spec) -> Sampler:
        """Return the sampler of the subgraphs of clusters."""
        with self.layout.shared.events.span("partition", parts=count):
            options: dict[str, Any] = {"seed": seed, "enhance": enhance, "partitioner": partitioner}
            return ClusterSampler(self.graph, count, train=train_ids(self.layout), **options)

    def saint(self, **options: Any) -> SaintSampler:
        """Return the sampler of random subgraphs."""
        return SaintSampler(self.graph, train=train_ids(self.layout), **options)

    def inputs(self, fanout: Sequence[int], sums: Sequence[Tensor] | None, **options: Any) -> Sampler:
        """Return the sampler of neighbourhoods whose first layer's `sums` are known; None: it reads all."""
        if sums is None:
            return NeighborSampler(self.graph, [*fanout, -1], **options)
        return InputSampler(self.graph, fanout, sums=sums, **options)

    def recorders(self, hops: int, history: History) -> list[Block]:
        """Return the blocks of an exact pass, of which those above the first layer fill the histories."""
        above = [Recorder(self.graph, layer, history) for layer in range(1, hops)]
        return [self.graph.block(), *above]

    def remembered(self, history: History, batch: Batch) -> Remembered:
        """Return the histories of a batch's rows."""
        return Here(history, batch.nodes)


class PartSource:
    """Parts of a graph. Workers draw together, and own what they train on."""

    in_parts: Literal[True] = True
    opened: Store | TypedStores | None = None

    def __init__(
        self, shared: Shared, graph: LocalGraph, store: Spec | None, part_rank: Sequence[int] | None
    ) -> None:
        if store is not None:
            graph = LocalGraph(as_read(graph.shard, store), facts=graph.facts)
        self.layout = HaloParts(shared, graph, part_rank)
        self.graph, self.shard, self.shared = graph, graph.shard, shared
        self.num_parts = graph.shard.num_parts
        self.lane: Group = shared.group.subgroup(shared.group.ranks, purpose="sample")

    def seed_loader(
        self, sampler: Any, kind: type[PartitionedLoader] = PartitionedLoader, **options: Any
    ) -> Loader:
        group = self.shared.group
        options = {"owner": sampler.owner, "rank": group.rank, "workers": group.size} | options
        return kind(sampler, self.shared.everyones(train_ids(self.layout)), **options)

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()

    def number_loader(self, sampler: Sampler, numbers: int, **options: Any) -> Loader:
        return CollectiveLoader(sampler, torch.arange(numbers), **options)

    def clusters(self, count: int, *, seed: int, enhance: float, partitioner: Spec) -> Sampler:
        return ClusterParts(self._pieces(), seed=seed, enhance=enhance)

    def saint(self, **options: Any) -> SaintParts:
        return SaintParts(self._pieces(), **options)

    def inputs(self, fanout: Sequence[int], sums: Sequence[Tensor] | None, **options: Any) -> Sampler:
        if sums is None:
            return PartitionedSampler(self.shard, self.lane, [*fanout, -1], **options)
        return PartitionedInputs(self.shard, self.lane, fanout, sums=sums, **options)

    def recorders(self, hops: int, history: History) -> list[Block]:
        first, group = self.layout.exact_block(), self.shared.group
        layers = range(1, hops)
        above = [HaloRecorder(self.shard, first.exchange, group, layer, history) for layer in layers]
        return [first, *above]

    def remembered(self, history: History, batch: Batch) -> Remembered:
        assert isinstance(batch, PartitionedBatch), "drawn by a sampler of parts"
        return AtOwners(history, batch.requests, self.shard.node_ids, self.shared.group, len(batch.blocks))

    def _pieces(self) -> Pieces:
        shared, plan = self.shared, self.layout.whole.exchange.whole_plan
        return Pieces(self.graph, plan, shared.group, self.lane, shared.clock, train_places(self.layout))


def source_of(
    shared: Shared,
    graph: GraphView,
    *,
    part_rank: Sequence[int] | None = None,
    store: Spec | None = None,
    ranked: bool = False,
) -> "GraphSource | PartSource":
    """Return where batches of what a process holds come from."""
    if isinstance(graph, LocalGraph):
        return PartSource(shared, graph, store, part_rank)
    if isinstance(graph, Graph):
        return GraphSource(shared, graph, store, ranked=ranked)
    raise InputError(f"batches are drawn from a graph or parts of one, got {type(graph).__name__}")


def train_ids(layout: Layout) -> Tensor:
    """Return the global ids of the own training nodes."""
    return layout.global_ids(train_places(layout))


def train_places(layout: Layout) -> Tensor:
    """Return the rows of the own training nodes among all own rows."""
    return layout.shared.targets["train"].places
