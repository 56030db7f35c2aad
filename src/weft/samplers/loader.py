"""Loader: batches prepared by threads ahead of training, handed over in a fixed order.

A thread takes the next step, prepares its whole batch (draws, reads features and y) and takes the next;
nearly all of that runs in the native core without the GIL. What the seeds of a step are is a function of
(seed, epoch, step) and what is drawn for them of (seed, epoch, node), so neither the number of threads nor a
resume changes a batch. The state of a loader is the epoch and the step that comes next.
"""

import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from weft.draw import Stream, fold, permutation
from weft.errors import GraphError, InputError
from weft.kernels import native
from weft.samplers.base import Batch, Sampler, as_seeds
from weft.samplers.gpu.transfer import Courier


class Loader:
    """Iterate over the batches of an epoch; after the last one the next epoch begins.

    `seeds` are global ids, by default the training nodes; each epoch shuffles them anew. `threads` prepare up
    to `ahead` batches before they are asked for; with 0 the caller prepares them. `convert` is applied to
    each batch by the thread that made it, for example `Batch.to_pyg`. `courier` brings batches to a GPU:
    `Courier("cuda", graph)`.

    >>> from weft import Graph
    >>> from weft.samplers import NeighborSampler
    >>> graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], x=torch.rand(4, 2))
    >>> loader = Loader(NeighborSampler(graph, [2]), range(4), batch_size=3)
    >>> [len(batch.seeds) for batch in loader], loader.state()
    ([3, 1], {'epoch': 1, 'step': 0})
    """

    def __init__(
        self,
        sampler: Sampler,
        seeds: Any = None,
        *,
        batch_size: int = 1024,
        shuffle: bool = True,
        drop_last: bool = False,
        threads: int = 2,
        ahead: int | None = None,
        convert: Callable[[Batch], Any] | None = None,
        courier: Courier | None = None,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("threads", threads, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
        self.sampler = sampler
        self.graph = sampler.graph
        self.seeds = self._checked(seeds)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.threads = threads
        self.ahead = max(1, threads + 2 if ahead is None else ahead)
        self.convert, self.courier = convert, courier
        self.epoch = self.step = 0
        self.seconds = {"wait": 0.0, "prepare": 0.0}  # of the caller; of all threads together
        self._order: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        whole, rest = divmod(self.seeds.numel(), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Generator[Any, None, None]:
        """Give the batches from the present step on; leaving early keeps the step, and stops the threads."""
        epoch, steps = self.epoch, range(self.step, len(self))
        with PreparingPool(partial(self._prepare, epoch), steps, self.threads, self.ahead) as pool:
            for step in steps:
                batch = self._wait(pool, step)
                self.epoch, self.step = epoch, step + 1
                yield batch
        self.epoch, self.step = epoch + 1, 0

    def seek(self, epoch: int, step: int = 0) -> None:
        """Continue with this step of this epoch; a loop that runs goes on with what it began."""
        if epoch < 0 or not 0 <= step <= len(self):
            raise InputError(f"no step {step} of epoch {epoch}: an epoch has {len(self)} steps")
        self.epoch, self.step = epoch, step

    def settle(self) -> None:
        """Wait for what was begun and is not asked for any more, where others take part in it."""

    def state(self) -> dict[str, int]:
        """Return what a resumed run gives to `load_state`."""
        return {"epoch": self.epoch, "step": self.step}

    def load_state(self, state: dict[str, int]) -> None:
        """Continue where `state()` was taken."""
        self.seek(state["epoch"], state["step"])

    def seeds_of(self, epoch: int, step: int) -> Tensor:
        """Return the seeds of a step: a function of (seed, epoch, step) alone."""
        order = self._order  # read once: threads ask at the same time
        if order is None or order[0] != epoch:
            order = self._order = (epoch, self._shuffled(epoch))
        return order[1][step * self.batch_size : (step + 1) * self.batch_size]

    def count(self, epoch: int, step: int) -> int:
        """Return how many seeds a step has, those of other workers included."""
        return self.seeds_of(epoch, step).numel()

    def batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of a step, whatever comes next."""
        seeds = self.seeds_of(epoch, step)
        if len(self.graph.node_types) > 1:
            seeds = seeds.sort().values  # and so by type
        return self.sampler.sample(seeds, epoch, step)

    def _checked(self, seeds: Any) -> Tensor:
        ids = as_seeds(self.graph, self.graph.seeds() if seeds is None else seeds)
        values, counts = torch.unique(ids, return_counts=True)
        if values.numel() < ids.numel():  # a shuffle could put both into one batch
            twice = int(values[counts > 1][0])
            raise GraphError(
                f"seed {twice} is there twice: an epoch has each seed once; use torch.unique(seeds)"
            )
        return ids

    def _shuffled(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self.seeds
        key = fold(self.sampler.seed, Stream.SHUFFLE, epoch)
        return self.seeds[torch.from_numpy(permutation(key, self.seeds.numel()))]

    def _prepare(self, epoch: int, step: int) -> Any:
        begin = time.perf_counter()
        make = partial(self._make, epoch, step)
        made = make() if self.courier is None else self.courier.prepare(make)
        self.seconds["prepare"] += time.perf_counter() - begin
        return made

    def _make(self, epoch: int, step: int) -> Any:
        batch = self.batch(epoch, step)
        if self.courier is not None and batch.nodes.is_cpu:
            batch = self.courier.carry(batch)
        return batch.fetch() if self.convert is None else self.convert(batch)

    def _wait(self, pool: "PreparingPool", step: int) -> Any:
        begin = time.perf_counter()
        try:
            made = pool.get(step)
            return made if self.courier is None else self.courier.open(made)
        finally:
            self.seconds["wait"] += time.perf_counter() - begin


class PreparingPool:
    """Threads that prepare steps in order, never more than `ahead` before the caller."""

    def __init__(self, prepare: Callable[[int], Any], steps: range, num_threads: int, ahead: int) -> None:
        self.prepare, self.steps, self.ahead = prepare, steps, ahead
        self.changed = threading.Condition()
        self.taken = self.wanted = steps.start
        self.ready: dict[int, Any] = {}
        self.failure: BaseException | None = None
        self.stopped = False
        self.threads = [
            threading.Thread(target=self._work, name=f"weft-loader-{number}", daemon=True)
            for number in range(min(num_threads, len(steps)))
        ]

    def __enter__(self) -> "PreparingPool":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()

    def get(self, step: int) -> Any:
        """Return what was prepared for the step; raise what a thread raised, for whichever step."""
        if not self.threads:
            return self.prepare(step)
        with self.changed:
            self.wanted = step
            self.changed.notify_all()
            while step not in self.ready and self.failure is None:
                self.changed.wait()
            if self.failure is not None:
                raise self.failure
            return self.ready.pop(step)

    def there(self, step: int) -> bool:
        """Return whether `get` would wait for no thread."""
        with self.changed:
            return not self.threads or step in self.ready

    def _work(self) -> None:
        alone()
        while (step := self._take()) is not None:
            try:
                made = self.prepare(step)
            except BaseException as error:  # the caller raises it
                with self.changed:
                    self.failure, self.stopped = error, True
                    self.changed.notify_all()
                return
            with self.changed:
                self.ready[step] = made
                self.changed.notify_all()

    def _take(self) -> int | None:
        with self.changed:
            while (
                not self.stopped and self.taken < self.steps.stop and self.taken >= self.wanted + self.ahead
            ):
                self.changed.wait()
            if self.stopped or self.taken >= self.steps.stop:
                return None
            self.taken += 1
            return self.taken - 1


def alone() -> None:
    """Let operators called by this thread use it alone; the other threads have batches of their own."""
    torch.get_num_threads()  # torch gives a new thread its number when first asked
    core = native.library()
    if core is not None:
        core.weft_thread_limit(1)
