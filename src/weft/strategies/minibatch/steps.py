"""An epoch of several steps, each on a batch that others prepared: what all mini-batch strategies share.

The clock is (seed, epoch, step), and a run can be saved between any two steps: what has been done of an epoch
is the step and the loss so far.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.graph.source import RowSource
from weft.samplers.base import Batch
from weft.samplers.loader import Loader
from weft.stores.base import Counters, Store
from weft.strategies.base import Strategy
from weft.strategies.step import take_step

_ZERO = torch.zeros(2, dtype=torch.float64)


class Steps(Strategy):
    """Takes the batches of a loader one after the other. A mixin: what a step is, the strategy says."""

    _loss = _ZERO
    """The summed loss of own seeds of the epoch so far, and how many seeds all workers had."""
    _told: Mapping[str, Any] | None = None
    _waited = _spent = 0.0
    infer: Callable[[nn.Module], Tensor] | None = None
    """Gives the exact outputs of the target type piece by piece, where features lie in a store."""

    @property
    def in_store(self) -> bool:
        """Whether features are read row by row, so that no pass can take all of them."""
        x = self.graph.x
        held = list(x.values()) if isinstance(x, Mapping) else [x]
        return self.infer is not None and any(isinstance(each, RowSource) for each in held)

    @property
    def wait_share(self) -> float | None:
        """The share of the epochs' time in which training waited for batches; None before the first one."""
        return self._waited / self._spent if self._spent else None

    def counters(self) -> Counters | None:
        """Return what was read from the store of the features; None where they are no store's."""
        x = self.graph.x
        return x.counters if isinstance(x, Store) else None

    # What a strategy provides

    @property
    def loader(self) -> Loader:
        """What prepares the batches."""
        raise NotImplementedError

    def batches(self) -> Generator[Any, None, None]:
        """Give the batches of the epoch from the loader's step on."""
        return iter(self.loader)

    # What the trainer calls

    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        """Take the steps that are left of the epoch and return the mean loss of its seeds.

        Where `between` says so it ends after a step, and the next call goes on there.
        """
        self.begin_epoch(model)
        model.train()
        epoch, first, steps = int(self.clock[1]), int(self.clock[2]), len(self.loader)
        if first == 0:
            self._loss = _ZERO.clone()
        began = _Counts(self)
        self.loader.seek(epoch, first)
        with closing(self.batches()) as batches:
            for step in range(first, steps):
                with self.events.phase("wait"):
                    batch = next(batches)
                self._note(*take_step(self, model, optimizer, batch, step))
                began.add(batch)
                self.clock[2] = step + 1
                if step + 1 < steps and self.between is not None and self.between():
                    self.loader.settle()
                    return self._end_epoch(began)
        self.clock[1] += 1
        self.clock[2] = 0
        return self._end_epoch(began)

    state_sums: ClassVar[tuple[str, ...]] = ("loss",)

    def state(self) -> dict[str, Tensor]:
        """Return the step and the loss so far, within an epoch."""
        if int(self.clock[2]) == 0:
            return {}
        summed, count = self._loss.cpu().clone()
        return {"step": self.clock[2:].clone(), "loss": summed, "count": count}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on within an epoch."""
        if "step" in state:
            self.clock[2] = int(state["step"])
            self._loss = torch.stack([state["loss"], state["count"]])

    def epoch_fields(self) -> dict[str, Any]:
        """Return what the batches of the last epoch were, and the seconds of their way."""
        return {} if self._told is None else {"batches": self._told}

    # Underneath

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of a batch's targets, in at least 32 bits."""
        return self.task.of_batch(model, self.batch_rows(model, batch), batch)

    def batch_rows(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the model's rows of a batch's seeds."""
        batch.set_clock(self.clock)
        blocks, device = self.blocks_of(model, batch), batch.device.type
        return self._outputs(model, blocks, batch.x, device=device)

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the blocks a model is called with."""
        return batch.blocks

    def _note(self, loss: Tensor, count: int) -> None:
        """Add the loss of a step to the epoch's, where it lies: to read it would be to wait for the step."""
        if count:
            self._loss = self._loss.to(loss.device)
            self._loss[0] += loss.detach().double() * count
            self._loss[1] += count

    def _end_epoch(self, began: "_Counts") -> float:
        """Note how the batches of the epoch went, and return the mean loss."""
        self._told = began.told(self)
        seconds = self._told["seconds"]
        self._waited += seconds["wait"]
        self._spent += sum(seconds[name] for name in ("wait", "transfer", "compute"))
        summed, count = self._loss.cpu()
        return self.total(summed) / max(float(count), 1.0)


class _Counts:
    """What an epoch's batches held, and how long they took to make and to use."""

    def __init__(self, strategy: Steps) -> None:
        self.steps = self.nodes = self.edges = 0
        self.prepared = strategy.loader.seconds["prepare"]
        self.seconds = dict(strategy.events.seconds)
        self.read = _read(strategy)

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.steps += 1
        self.nodes += batch.num_nodes
        self.edges += batch.num_edges

    def told(self, strategy: Steps) -> dict[str, Any]:
        """Return the field of an epoch's event; `prepare` ran beside the rest where threads did it."""
        now = strategy.events.seconds
        spent = {name: now.get(name, 0.0) - self.seconds.get(name, 0.0) for name in now}
        compute = sum(spent.get(name, 0.0) for name in ("forward", "backward", "optimizer"))
        told: dict[str, Any] = {
            "steps": self.steps,
            "nodes": self.nodes,
            "edges": self.edges,
            "seconds": {
                "prepare": strategy.loader.seconds["prepare"] - self.prepared,
                "wait": spent.get("wait", 0.0),
                "transfer": spent.get("transfer", 0.0),
                "compute": compute,
            },
        }
        read = {name: value - self.read[name] for name, value in _read(strategy).items()}
        if read:
            read["hit_rate"] = read["hits"] / max(read["rows"], 1)
            told["store"] = read
        return told


def _read(strategy: Steps) -> dict[str, float]:
    """Return the counts of the features' store so far; nothing where there is none."""
    counters = strategy.counters()
    return {} if counters is None else {name: getattr(counters, name) for name in ("rows", "hits", "bytes")}
