"""Who draws neighbourhoods: this process from a whole graph, or workers together from their parts of one."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.rows import owners
from weft.errors import WeftWarning
from weft.graph.graph import Graph
from weft.samplers.base import Sampler, samplers
from weft.samplers.loader import Loader
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.replicas import Replicate, important, with_replicas
from weft.samplers.workers.row_requests import LABEL
from weft.stores.cached import CachedStore
from weft.stores.open import open_store
from weft.stores.rankers import frequency
from weft.stores.typed import TypedStores
from weft.strategies.minibatch.batch_source import BatchSource, GraphSource, PartSource, Spec, train_ids
from weft.strategies.minibatch.closing import CLOSURE, closed_shard
from weft.strategies.minibatch.fanouts import Hops
from weft.strategies.minibatch.sampler_ranks import ReceivingLoader, dismiss
from weft.strategies.placement import Where


@dataclass(frozen=True)
class DrawSettings:
    """The draws of a run, whoever makes them."""

    kind: str
    """The sampler."""
    options: dict[str, Any]
    """Its own, with the seed."""
    batch_size: int
    threads: int

    @property
    def loading(self) -> dict[str, Any]:
        """The options of a loader."""
        return {"batch_size": self.batch_size, "threads": self.threads}


class Neighbours(Protocol):
    """Who draws the neighbourhoods of a run: in either kind the batches are the same."""

    @property
    def source(self) -> BatchSource:
        """Where batches come from."""

    @property
    def drawing(self) -> DrawSettings:
        """The draws of the run."""

    def sampler(self, fanout: Hops, **more: Any) -> Sampler:
        """Return what draws so many edges a row in each hop, and `more` of its options; for all workers."""

    def training_sampler(self, fanout: Hops) -> Sampler:
        """Return the sampler of training; called by all workers."""

    def loader(self, sampler: Any, fanout: Hops) -> Loader:
        """Return the loader of own training nodes."""

    def close(self) -> None:
        """Let go of what was opened."""


class GraphNeighbours:
    """Neighbourhoods in a graph that is all here, drawn on a GPU where that can be and `sample_on` allows."""

    def __init__(self, source: GraphSource, drawing: DrawSettings, sample_on: Where) -> None:
        self.source, self.drawing = source, drawing
        # A GPU draws from all edges, and a batch of pairs hides those between the ends that it scores.
        self.sample_on: Where = sample_on if source.layout.shared.task.over == "nodes" else "cpu"

    def sampler(self, fanout: Hops, **more: Any) -> Sampler:
        """Return what draws so many edges a row in each hop, and `more` of its options."""
        nearby = self.source.layout.nearby

        def make(graph: Graph) -> Sampler:
            return self._drawing(graph, fanout, **more)

        return make(self.source.graph) if nearby is None else nearby.sampler(make, self.sample_on)

    def training_sampler(self, fanout: Hops) -> Sampler:
        """Return the sampler of training; a cache then holds the rows that its batches read most often."""
        cache = self.source.opened
        if isinstance(cache, CachedStore | TypedStores) and not cache.ranked:
            drawn, seeds = self._drawing(self.source.graph, fanout), train_ids(self.source.layout)
            cache.hold(frequency(drawn, seeds, batch_size=self.drawing.batch_size))
            self.source.layout.forget_nearby()  # what a GPU has of the store is of before
        return self.sampler(fanout)

    def loader(self, sampler: Any, fanout: Hops) -> Loader:
        """Return the loader of training nodes."""
        return self.source.seed_loader(sampler, **self.drawing.loading)

    def close(self) -> None:
        """Let go of what was opened."""
        self.source.close()

    def _drawing(self, graph: Graph, fanout: Hops, **more: Any) -> Sampler:
        made: Any = samplers[self.drawing.kind]
        drawn: Sampler = made(graph, fanout, **self.drawing.options, **more)
        return drawn


class PartNeighbours:
    """Neighbourhoods in a graph of which each worker holds parts.

    `store` is where features are read from, `replicate` which neighbourhoods every worker holds, `samplers`
    how many ranks only draw. With `closed` workers copy once what their training nodes read. `local` has each
    shuffle its own seeds.
    """

    def __init__(
        self,
        source: PartSource,
        drawing: DrawSettings,
        *,
        store: Spec | None = None,
        replicate: Replicate | None = None,
        samplers: int = 0,
        closed: bool = False,
        local: bool = False,
    ) -> None:
        self.source, self.drawing, self.store = source, drawing, store
        self.replicate, self.samplers, self.closed, self.local = replicate, samplers, closed, local
        self._important: Tensor | None = None
        if local and source.shared.group.size > 1:
            warnings.warn(
                "strategy.seeds = 'local': each worker shuffles its own seeds, so the steps depend on the "
                "number of workers; 'global' does not",
                WeftWarning,
                stacklevel=3,
            )

    def sampler(self, fanout: Hops, **more: Any) -> Sampler:
        """Return what draws so many edges a row in each hop, and `more` of its options; for all workers."""
        source = self.source
        if source.opened is None and self.store is not None:
            # A sampler without the store tells what batches will read, which the store keeps rows by.
            trial = self._drawing(fanout)
            reads = partial(self._reads, trial)
            source.opened = open_store(self.store, source.shard, reads, group=source.lane)
        sampler = self._drawing(fanout, **more)
        if self.replicate is not None:
            if self._important is None:
                self._important = important(source.shard, source.lane, self.replicate)
            sampler.hold(with_replicas(sampler, self._important), self._important)
        return sampler

    def training_sampler(self, fanout: Hops) -> Sampler:
        """Return the sampler of training: where parts are closed, of what a worker copied."""
        if not self.closed:
            return self.sampler(fanout)
        source, shared = self.source, self.source.shared
        own = source.shard
        closed = closed_shard(own, source.lane, train_ids(source.layout), len(fanout))
        rows = torch.tensor([len(closed.node_ids)], dtype=torch.int64)
        copies = int(shared.group.all_reduce(rows, label=CLOSURE).wait()) / own.num_nodes
        shared.events.write("closure", rows=len(closed.node_ids), own=len(own.node_ids), replication=copies)
        options = {"kind": self.drawing.kind, **self.drawing.options}
        return PartitionedSampler(closed, Group.alone(), fanout, **options)

    def loader(self, sampler: Any, fanout: Hops) -> Loader:
        """Return the loader of own training nodes, or of what ranks that only draw send."""
        source = self.source
        options: dict[str, Any] = {**self.drawing.loading, "local": self.local}
        if self.closed:
            shard = source.shard
            owner = owners(shard.node_ids, shard.num_nodes, source.lane, label=LABEL)
            return source.seed_loader(sampler, owner=owner, **options)
        if not self.samplers:
            return source.seed_loader(sampler, **options)
        more: dict[str, Any] = {"whole": source.shared.group.parent, "hops": len(fanout)}
        return source.seed_loader(sampler, ReceivingLoader, **more, **options)

    def close(self) -> None:
        """Close the store that was opened, and let the ranks go that only draw."""
        self.source.close()
        group = self.source.shared.group
        if self.samplers and group.parent is not None:
            dismiss(group.parent)
            self.samplers = 0

    def _drawing(self, fanout: Hops, **more: Any) -> PartitionedSampler:
        options = {"kind": self.drawing.kind, "features": self.source.opened, **self.drawing.options, **more}
        return PartitionedSampler(self.source.shard, self.source.lane, fanout, **options)

    def _reads(self, trial: PartitionedSampler) -> tuple[Callable[[int, int], Tensor], int]:
        """Return the nodes of this worker's batches, by epoch and step, and the number of steps."""
        loader = self.source.seed_loader(trial, **self.drawing.loading, local=self.local)
        return lambda epoch, step: trial.reach(loader.seeds_of(epoch, step), epoch, step).rows, len(loader)
