"""Loaders of workers that prepare each batch together, or train on it together.

All workers take the same steps in the same order: a worker without a seed in a step still has its part in it.
"""

import queue
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from weft.draw import Stream, fold, permutation
from weft.samplers.base import Batch
from weft.samplers.loader import Loader, alone
from weft.samplers.workers.partitioned import PartitionedSampler


class CollectiveLoader(Loader):
    """A loader whose batches all workers prepare together, step after step.

    One thread goes through the steps in order, as on all workers: `threads` is how many batches it may be
    ahead; with 0 the caller prepares them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun: deque[Future[Batch]] = deque()

    def __iter__(self) -> Generator[Any, None, None]:
        """Give the batches from the present step on, some prepared ahead where a thread does it."""
        epoch, first, stop = self.epoch, self.step, len(self)
        prepare = partial(self._prepare, epoch)
        # One thread, whatever `threads` is: preparing a batch is a sequence of collectives, and two at a time
        # would meet in another order on another worker.
        lane = _Lane(prepare) if self.threads else None
        self._begun.clear()
        coming = iter(range(first, stop))

        def begin(count: int) -> None:
            if lane is not None:
                self._begun.extend(lane.start(step) for step in islice(coming, count))

        try:
            begin(self.threads)
            for step in range(first, stop):
                batch = self._begun.popleft().result() if self._begun else prepare(step)
                begin(1)
                self.epoch, self.step = epoch, step + 1
                yield batch
        finally:
            if lane is not None:
                lane.close()
        self.epoch, self.step = epoch + 1, 0

    def settle(self) -> None:
        """Wait for the batches that were begun: the others wait for this worker's part in them."""
        while self._begun:
            self._begun.popleft().result()


class PartitionedLoader(CollectiveLoader):
    """The loader of a worker: each step has the global seeds of the step that it owns, perhaps none.

    `seeds` are those of all `workers`, and `owner` [N] says which has each node. With `local` each worker
    shuffles its own seeds and takes its share of `batch_size`.
    """

    sampler: PartitionedSampler

    def __init__(
        self,
        sampler: PartitionedSampler,
        seeds: Tensor,
        *,
        owner: Tensor,
        rank: int,
        workers: int,
        batch_size: int = 1024,
        local: bool = False,
        threads: int = 1,
    ) -> None:
        # A shuffle is of places among the seeds: in one process by id, here in the order of workers.
        super().__init__(sampler, seeds.sort().values, batch_size=batch_size, threads=threads)
        self.rank, self.owner, self.local = rank, owner, local
        holders = owner[self.seeds]
        self.sizes = torch.bincount(holders, minlength=workers).tolist()
        self.share = -(-batch_size // workers)
        self.own = self.seeds[holders == rank]

    def __len__(self) -> int:
        """Return the number of steps of an epoch, the same on all workers."""
        return max(-(-size // self.share) for size in self.sizes) if self.local else super().__len__()

    def count(self, epoch: int, step: int) -> int:
        """Return how many seeds a step has on all workers together."""
        if not self.local:
            return super().seeds_of(epoch, step).numel()
        return sum(max(0, min(self.share, size - step * self.share)) for size in self.sizes)

    def seeds_of(self, epoch: int, step: int) -> Tensor:
        """Return the own seeds of a step."""
        if not self.local:
            seeds = super().seeds_of(epoch, step)
            return seeds[self.owner[seeds] == self.rank]
        # rank + 1: 0 has the shuffle of all seeds together.
        key = fold(self.sampler.seed, Stream.SHUFFLE, epoch, 0, self.rank + 1)
        order = torch.from_numpy(permutation(key, len(self.own)))
        return self.own[order[step * self.share : (step + 1) * self.share]]


class _Lane:
    """A thread that prepares steps in the order in which they are asked for."""

    def __init__(self, prepare: Any) -> None:
        self.prepare = prepare
        self.asked: queue.SimpleQueue[tuple[int, Future[Batch]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="weft-loader", daemon=True).start()

    def start(self, step: int) -> "Future[Batch]":
        """Begin with a step, after those before it."""
        future: Future[Batch] = Future()
        self.asked.put((step, future))
        return future

    def close(self) -> None:
        """Have the thread end when it is done."""
        self.asked.put(None)

    def _work(self) -> None:
        alone()
        while (job := self.asked.get()) is not None:
            step, future = job
            try:
                future.set_result(self.prepare(step))
            except BaseException as error:  # who asks for the result raises it
                future.set_exception(error)
