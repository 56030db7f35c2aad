"""Ranks that only sample, beside those that train (DGL 0.3's remote samplers).

The last ranks of a run hold the whole graph, make the batches of all trainers and push them: step t is made
by sampler t mod S, for every trainer in turn. A trainer tells with each whether it goes on; after the last
step a sampler signals the end of the epoch. Batches are those that the trainers would make themselves, so
nothing else knows of it. Between epochs samplers wait for a word of the first trainer, however long it
evaluates.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import RecipeError
from weft.graph.parts.shard import Shard
from weft.samplers.base import Batch
from weft.samplers.loader import PreparingPool
from weft.samplers.workers.parcel import from_bytes, header_size, num_bytes, pack, to_bytes, unpack
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.worker_loaders import PartitionedLoader
from weft.stores.base import Store
from weft.stores.open import as_read, open_store
from weft.stores.typed import TypedStores

_BATCH = Label("batch")
_ORDERS = "batches"
_END = -2  # in place of the first word of a header
_GO, _STOP = 1, 0


def check_samplers(samplers: int, workers: int) -> int:
    """Return how many of so many workers train; refuse samplers without any."""
    if samplers >= workers:
        raise RecipeError(
            f"strategy.samplers: {samplers} of {workers} workers would sample and none train; start at least "
            f"{samplers + 1} with --workers (in one process, threads sample: strategy.prepare)"
        )
    return workers - samplers


def dismiss(whole: Group) -> None:
    """Tell the samplers that the run is over; the first trainer does."""
    if whole.rank == 0:
        whole.post(_ORDERS, None)


class ReceivingLoader(PartitionedLoader):
    """The loader of a trainer: its batches come from the samplers of the run `whole`."""

    def __init__(self, *args: Any, whole: Group, workers: int, hops: int, **options: Any) -> None:
        super().__init__(*args, workers=workers, **options)
        self.whole, self.workers = whole, workers
        self.size = header_size(hops, self._shard)
        self._served = False

    @property
    def _shard(self) -> Shard:
        return self.sampler.shard

    def __iter__(self) -> Generator[Any, None, None]:
        """Give the batches from the present step on; the samplers are told to begin, and signal the end."""
        if self.rank == 0:
            fanout = self.sampler.draws.fanout.tolist()
            self.whole.post(_ORDERS, {"epoch": self.epoch, "step": self.step, "fanout": fanout})
        self._served = True
        try:
            yield from super().__iter__()
        finally:
            # Whoever takes the last batch need not ask for another. An error is told in another way.
            if self._served and self.step in (0, len(self)):
                self._release()

    def settle(self) -> None:
        """Take the batch that was begun, and tell the samplers to stop."""
        super().settle()
        self._release()

    def batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of a step as it comes from its sampler."""
        sampler = self.workers + step % (self.whole.size - self.workers)
        header = self._answer(sampler, _GO)
        assert int(header[0]) != _END, "a sampler has as many steps as a trainer"
        data = torch.empty(num_bytes(header), dtype=torch.uint8)
        if len(data):
            self.whole.receive(data, sampler, label=_BATCH)
        return unpack(from_bytes(header, data), self._shard, self.graph, epoch=epoch, step=step)

    def _release(self) -> None:
        """Hear every sampler once more: it signals the end, or is told to stop."""
        self._served = False
        for sampler in range(self.workers, self.whole.size):
            self._answer(sampler, _STOP)

    def _answer(self, sampler: int, word: int) -> Tensor:
        """Tell a sampler whether this trainer goes on, and return the header that it has for it."""
        self.whole.send(torch.tensor([word]), sampler, label=_BATCH)
        return self.whole.receive(torch.empty(self.size, dtype=torch.int64), sampler, label=_BATCH)


class SamplerRank:
    """Serves the trainers of a run until they need no more; `seeds` are what they train on, by id."""

    def __init__(
        self,
        group: Group,
        shard: Shard,
        seeds: Tensor,
        *,
        seed: int,
        options: Mapping[str, Any],
        part_rank: Sequence[int],
    ) -> None:
        self.group, self.seeds, self.seed, self.options = group, seeds, seed, dict(options)
        self.samplers = int(self.options["samplers"])
        self.trainers = group.size - self.samplers
        store = self.options.get("store")
        self.shard = shard if store is None else as_read(shard, store)
        self.features: Store | TypedStores | None = None
        if store is not None:
            self.features = open_store(store, self.shard)
        self.owner = torch.empty(shard.num_nodes, dtype=torch.int64)
        self.owner[shard.node_ids] = torch.tensor(part_rank)[shard.node_part.long()]
        self._loaders: list[PartitionedLoader] = []

    def serve(self) -> None:
        """Make the batches of one epoch after the other, as the first trainer asks for them."""
        while (order := self.group.expect(_ORDERS)) is not None:
            self._epoch(order["epoch"], order["step"], order["fanout"])
        if self.features is not None:
            self.features.close()

    def _epoch(self, epoch: int, first: int, fanout: list[list[int]]) -> None:
        if not self._loaders:
            self._loaders = self._make_loaders(fanout)
        number, count = self.group.rank - self.trainers, len(self._loaders[0])
        jobs = [
            (step, trainer)
            for step in range(first, count)
            if step % self.samplers == number
            for trainer in range(self.trainers)
        ]
        threads = int(self.options.get("prepare", 2))
        with PreparingPool(
            lambda job: self._make(epoch, *jobs[job]), range(len(jobs)), threads, threads + 2
        ) as pool:
            for job, (_, trainer) in enumerate(jobs):
                goes_on = self._send(trainer, *pool.get(job))
                # Trainers stop at the same step, and the last is served last: nobody waits any more.
                if not goes_on and trainer == self.trainers - 1:
                    return
        for trainer in range(self.trainers):
            self._send(trainer, self._signal(), torch.zeros(0, dtype=torch.uint8))

    def _make(self, epoch: int, step: int, trainer: int) -> tuple[Tensor, Tensor]:
        batch = self._loaders[trainer].batch(epoch, step)
        return to_bytes(pack(batch, self.shard), self.size)

    def _send(self, trainer: int, header: Tensor, data: Tensor) -> bool:
        """Push a batch, or a signal; return whether the trainer goes on."""
        answer = self.group.receive(torch.empty(1, dtype=torch.int64), trainer, label=_BATCH)
        self.group.send(header, trainer, label=_BATCH)
        goes_on = int(answer) == _GO
        if goes_on and len(data):
            self.group.send(data, trainer, label=_BATCH)
        return goes_on

    def _signal(self) -> Tensor:
        return torch.full((self.size,), _END)

    def _make_loaders(self, fanout: list[list[int]]) -> list[PartitionedLoader]:
        """Return the loader of each trainer, over one sampler of the whole graph."""
        hops = [row[0] if len(row) == 1 else dict(zip(self.shard.edge_types, row)) for row in fanout]
        self.size = header_size(len(hops), self.shard)
        choice = self.options.get("sampler", "neighbor")
        options = {"name": choice} if isinstance(choice, str) else dict(choice)
        options = {"seed": self.seed, "kind": options.pop("name", "neighbor"), **options}
        sampler = PartitionedSampler(self.shard, Group.alone(), hops, features=self.features, **options)
        settings: dict[str, Any] = {"owner": self.owner, "workers": self.trainers}
        settings |= {"batch_size": self.options.get("batch_size", 1024)}
        settings |= {"local": self.options.get("seeds") == "local"}
        return [
            PartitionedLoader(sampler, self.seeds, rank=trainer, **settings)
            for trainer in range(self.trainers)
        ]
