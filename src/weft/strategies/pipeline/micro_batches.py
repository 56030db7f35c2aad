"""Micro-batches, made by each stage for itself: seeds and draws are functions of (seed, epoch, step, node).

All stages find the same rows in the same order, so no edges, ids or shapes travel. A stage draws no further
than the hops that it and those behind it look: the last one, a few edges a seed. Features are read by the
first alone. A micro-batch is a share of the seeds of a step with a neighbourhood of its own; a node has the
same sample and the same dropout in all of a step.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.graph.parts.shard import Shard
from weft.samplers.base import Batch
from weft.samplers.loader import Loader, PreparingPool
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.strategies.minibatch.neighbours import DrawSettings
from weft.strategies.pipeline.growth import BatchSize


class NoFeatures:
    """In place of features, for stages that read none."""

    def gather(self, ids: Tensor) -> None:
        """Return nothing."""


class MicroBatches:
    """The micro-batches of one stage; `micro` of them a step."""

    def __init__(
        self,
        shard: Shard,
        seeds: Tensor,
        fanout: Sequence[Any],
        drawing: DrawSettings,
        *,
        micro: int,
        sizes: BatchSize,
        features: bool,
    ) -> None:
        options = {"kind": drawing.kind, **drawing.options}
        source = None if features else NoFeatures()
        self.sampler = PartitionedSampler(shard, Group.alone(), list(fanout), features=source, **options)
        self.loader = Loader(self.sampler, seeds.sort().values, batch_size=drawing.batch_size, threads=0)
        self.sizes, self.micro, self.threads = sizes, micro, drawing.threads
        self._typed = len(shard.node_types) > 1

    def seek(self, epoch: int) -> int:
        """Go to an epoch, and return how many steps it has."""
        self.loader.batch_size = self.sizes.of(epoch)
        return len(self.loader)

    def shares(self, epoch: int, step: int) -> list[Tensor]:
        """Return the seeds of each micro-batch of a step; none is empty."""
        seeds = self.loader.seeds_of(epoch, step)
        parts = seeds.tensor_split(min(self.micro, max(len(seeds), 1)))
        return [part.sort().values for part in parts] if self._typed else list(parts)

    def make(self, epoch: int, step: int, seeds: Tensor) -> Batch:
        """Return a micro-batch, with a moment of its own that dropout is drawn by."""
        batch = self.sampler.sample(seeds, epoch, step).fetch()
        batch.set_clock(torch.tensor([self.sampler.seed, epoch, step], dtype=torch.int64))
        return batch

    @contextmanager
    def prepared(self, epoch: int, jobs: Sequence[tuple[int, Tensor]]) -> Iterator[PreparingPool]:
        """Give what returns the n-th of some (step, seeds), in their order, made ahead by threads."""
        with PreparingPool(
            lambda job: self.make(epoch, *jobs[job]), range(len(jobs)), self.threads, self.threads + 2
        ) as pool:
            yield pool


class OwnBatches:
    """The micro-batches of a worker in a round, by their numbers; one may be looked at before it is taken."""

    def __init__(self, pool: PreparingPool, begin: int, replicas: int) -> None:
        """`begin` is the place of the first among all that the pool makes; `replicas` share the numbers."""
        self._pool, self._begin, self._replicas = pool, begin, replicas
        self._seen: dict[int, Batch] = {}

    def there(self, micro: int) -> bool:
        """Return whether a micro-batch is made already."""
        return micro in self._seen or self._pool.there(self._place(micro))

    def look(self, micro: int) -> Batch:
        """Return a micro-batch that will be taken later."""
        if micro not in self._seen:
            self._seen[micro] = self._pool.get(self._place(micro))
        return self._seen[micro]

    def take(self, micro: int) -> Batch:
        """Return a micro-batch for the last time."""
        self.look(micro)
        return self._seen.pop(micro)

    def _place(self, micro: int) -> int:
        return self._begin + micro // self._replicas
