"""Steps on batches that a loader prepares while the steps before run: what all mini-batches share.

A run can be saved between any two steps. The seeds of a step are a function of (seed, epoch, step), each
worker sums the loss of its own, and gradients are summed: so steps do not depend on how many workers there
are.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.stores.base import Counters, Store
from weft.strategies.batching import Batching
from weft.strategies.norm import GlobalBatchNorm


class LoadedBatches(Batching):
    """The batches of a loader, one a step. A subclass makes the loader, and says what a model sees of one."""

    _loader: Loader | None = None
    _told: dict[str, Any] | None = None
    _waited = _spent = 0.0

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches of an epoch; called by all workers."""
        raise NotImplementedError

    @property
    def loader(self) -> Loader:
        """What prepares the batches."""
        assert self._loader is not None, "begin_epoch makes it"
        return self._loader

    # The steps of an epoch

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the loader on first use."""
        if self._loader is None:
            self._loader = self.make_loader(model)

    def __len__(self) -> int:
        return len(self.loader)

    def batches(self, epoch: int, first: int) -> Generator[Any, None, None]:
        """Give the batches of the epoch from a step on, and note how they went."""
        counts = _Counts(self)
        self.loader.seek(epoch, first)
        try:
            with closing(self.coming()) as coming:
                for _ in range(first, len(self)):
                    with self.shared.events.phase("wait"):
                        batch = next(coming)
                    counts.add(batch)
                    yield batch
        finally:
            self._note(counts)

    def coming(self) -> Generator[Any, None, None]:
        """Give the batches from the loader's step on."""
        return iter(self.loader)

    def settle(self) -> None:
        """Wait for the batches that were begun."""
        self.loader.settle()

    def loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the loss of the own targets as a share of the step's mean, and how many rows all have."""
        task = self.shared.task
        count = self.loader.count(int(self.shared.clock[1]), step) * task.rows_per_target
        if not batch.num_targets and not self.runs_together(model):
            return torch.zeros(()), count  # whose gradients are zeros: the reducer sends them
        outputs = self.batch_outputs(model, batch)
        return task.loss.summed(outputs, task.values_of_batch(batch)) / count, count

    def runs_together(self, model: nn.Module) -> bool:
        """Return whether all workers must run the model together, also one without a seed in a step."""
        norms = any(isinstance(module, GlobalBatchNorm) for module in model.modules())
        return norms or self.shared.pulls_rows

    # A batch

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of a batch's targets, in at least 32 bits."""
        return self.shared.task.of_batch(model, self.batch_rows(model, batch), batch)

    def batch_rows(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the model's rows of a batch's seeds."""
        batch.set_clock(self.shared.clock)
        return self.shared.call(model, self.blocks_of(model, batch), batch.x, device=batch.device.type)

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the blocks a model is called with."""
        return batch.blocks

    # What is told

    @property
    def wait_share(self) -> float | None:
        """The share of the epochs' time in which training waited for batches; None before the first one."""
        return self._waited / self._spent if self._spent else None

    def epoch_fields(self) -> dict[str, Any]:
        """Return what the batches of the last epoch were, and the seconds of their way."""
        return {} if self._told is None else {"batches": self._told}

    def counters(self) -> Counters | None:
        x = self.layout.graph.x
        return x.counters if isinstance(x, Store) else None

    def _note(self, counts: "_Counts") -> None:
        self._told = counts.told(self)
        seconds = self._told["seconds"]
        self._waited += seconds["wait"]
        self._spent += sum(seconds[name] for name in ("wait", "transfer", "compute"))


class _Counts:
    """What an epoch's batches held, and how long they took to make and to use."""

    def __init__(self, batching: LoadedBatches) -> None:
        self.steps = self.nodes = self.edges = 0
        self.prepared = batching.loader.seconds["prepare"]
        self.seconds = dict(batching.shared.events.seconds)
        self.read = _read(batching)

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.steps += 1
        self.nodes += batch.num_nodes
        self.edges += batch.num_edges

    def told(self, batching: LoadedBatches) -> dict[str, Any]:
        """Return the field of an epoch's event; `prepare` ran beside the rest where threads did it."""
        now = batching.shared.events.seconds
        spent = {name: now.get(name, 0.0) - self.seconds.get(name, 0.0) for name in now}
        compute = sum(spent.get(name, 0.0) for name in ("forward", "backward", "optimizer"))
        told: dict[str, Any] = {
            "steps": self.steps,
            "nodes": self.nodes,
            "edges": self.edges,
            "seconds": {
                "prepare": batching.loader.seconds["prepare"] - self.prepared,
                "wait": spent.get("wait", 0.0),
                "transfer": spent.get("transfer", 0.0),
                "compute": compute,
            },
        }
        read = {name: value - self.read[name] for name, value in _read(batching).items()}
        if read:
            read["hit_rate"] = read["hits"] / max(read["rows"], 1)
            told["store"] = read
        return told


def _read(batching: LoadedBatches) -> dict[str, float]:
    """Return the counts of the features' store so far; nothing where there is none."""
    counters = batching.counters()
    return {} if counters is None else {name: getattr(counters, name) for name in ("rows", "hits", "bytes")}
