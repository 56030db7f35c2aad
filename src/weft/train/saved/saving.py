"""Saving a run and continuing it: what goes into a checkpoint, and how it comes back."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft.reading.damage import reading
from weft.strategies.base import Strategy
from weft.train.optim import Best, Schedule
from weft.train.saved.checkpoint import (
    Checkpoint,
    Tensors,
    assign_weights,
    optimizer_state,
    restore_optimizer,
    weights_of,
)
from weft.train.saved.run_folder import RunFolder
from weft.train.workers.deal import packed, unpacked


@dataclass(frozen=True)
class Progress:
    """How far a run has come, beyond its weights, its optimiser and its strategy."""

    epoch: int
    """Epochs that were done."""
    loss: float
    """The last one's."""
    best: Best
    best_weights: Tensors | None = None


class Rhythm:
    """When to save by the clock: every ten seconds, and where writing is slow, a twentieth of the time."""

    least = 10.0
    share = 20.0

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ended, self._took = now(), 0.0

    def due(self) -> bool:
        """Return whether enough was trained since the last checkpoint."""
        return self._now() - self._ended >= max(self.least, self.share * self._took)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Take the time of writing one."""
        begun = self._now()
        yield
        self._ended = self._now()
        self._took = self._ended - begun


class Moved(Exception):
    """Leaves training at a boundary: another generation of workers goes on."""


@dataclass(frozen=True)
class Handover:
    """How one part goes on when workers change."""

    resumed: Checkpoint | None
    """What it continues from, in memory; None: the checkpoint of the run's folder, if there is one."""
    asked: Callable[[], int]
    """Returns the generation that is to follow at the next boundary, 0 where none is."""
    keep: Callable[[int, Callable[[], Checkpoint | None]], None]
    """Keeps what a function takes of the run after an epoch, to continue from where a worker is lost."""
    by_disk: Callable[[int], bool]
    """Returns whether the generation of that number goes on from a checkpoint in the run's folder."""
    span: str
    """The least and the most workers, as the user gave them."""
    told: Callable[[], dict[str, Any]]
    """Returns what the event of this generation says."""


class Saver:
    """Writes the checkpoints of a run into its folder, and continues from the one that was found there."""

    def __init__(
        self,
        folder: RunFolder,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        strategy: Strategy,
    ) -> None:
        self.folder, self.model, self.optimizer = folder, model, optimizer
        self.schedule, self.strategy = schedule, strategy

    def save(self, progress: Progress, *, elapsed: float) -> None:
        """Write a checkpoint, after so many seconds; called on every worker, and the first one writes it."""
        self.folder.expect_there()
        ranks = self._save_rank(progress.epoch)
        tensors, rest = optimizer_state(self.optimizer)
        tensors = self.strategy.reducer.joined_state(self.optimizer, tensors)
        if not self.folder.rank:
            groups, state = self._run(progress, (tensors, rest), ranks, elapsed)
            self.folder.checkpoints.save(progress.epoch, groups, state, step=self._steps())
        # Who does not write waits here, patiently, not in the next collective: a slow disk is no lost rank.
        self.strategy.gather(None)

    def keeps_own(self) -> bool:
        """Return whether this worker keeps something that others do not; so on every worker, or on none."""
        return bool(packed(self.strategy))

    def snapshot(self, progress: Progress, *, elapsed: float) -> Checkpoint | None:
        """Return what a checkpoint would hold; None where this worker keeps something of its own beside.

        Where the reducer is scattered all workers call it, with the weights of all.
        """
        if self.keeps_own():
            return None
        tensors, rest = optimizer_state(self.optimizer)
        tensors = self.strategy.reducer.joined_state(self.optimizer, tensors)
        groups, state = self._run(progress, (tensors, rest), [], elapsed)
        return Checkpoint(self.folder.checkpoints.folder, progress.epoch, groups, state)

    def _run(
        self,
        progress: Progress,
        optimizer: tuple[Tensors, dict[str, Any]],
        ranks: list[dict[str, str]],
        elapsed: float,
    ) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return the tensors, by group, and all else that a checkpoint holds."""
        tensors, rest = optimizer
        groups = {
            "model": weights_of(self.model),
            "best": progress.best_weights or {},
            "optimizer": tensors,
            "random": self._random(),
        }
        state = {
            "recipe": self.folder.recipe,
            "optimizer": rest,
            "schedule": self.schedule.state(),
            "batches": self.strategy.batching.run_state(),
            "loss_scale": self.strategy.loss_scale.state() if self.strategy.loss_scale else None,
            "best": asdict(progress.best),
            "loss": progress.loss,
            "elapsed": elapsed,
            "ranks": ranks,
        }
        return groups, state

    def restore(self) -> Progress | None:
        """Put everything back to the folder's checkpoint and return how far it had come; None without one."""
        saved = self.folder.resumed
        if saved is None:
            return None
        assign_weights(self.model, saved.tensors["model"], where=f"checkpoint {saved.folder}")
        with reading(saved.folder):
            progress = self._restore_here(saved)
        self.strategy.seek(saved.epoch)
        checkpoint = unpacked(self.folder.checkpoints, saved, self.strategy, self.folder.rank)
        self.strategy.load_state(checkpoint)
        self._restore_random(saved.tensors["random"])
        return progress

    def _restore_here(self, saved: Checkpoint) -> Progress:
        """Put back what no other worker takes part in, and return how far the run had come."""
        state = self.strategy.reducer.own_state(self.optimizer, saved.tensors["optimizer"])
        restore_optimizer(self.optimizer, state, saved.state["optimizer"])
        self.schedule.restore(saved.state["schedule"])
        self.strategy.batching.load_run_state(saved.state.get("batches", {}))
        if self.strategy.loss_scale is not None:
            self.strategy.loss_scale.restore(saved.state["loss_scale"])
        loss = math.nan if saved.state["loss"] is None else float(saved.state["loss"])
        return Progress(saved.epoch, loss, Best(**saved.state["best"]), saved.tensors["best"] or None)

    def _save_rank(self, epoch: int) -> list[dict[str, str]]:
        """Write what every worker's exchange holds, and return the files when all of them are there."""
        state = packed(self.strategy)
        if not state:  # which is so on every worker or on none
            return []
        entry = self.folder.checkpoints.save_rank(epoch, self.folder.rank, state, step=self._steps())
        return self.strategy.gather(entry)

    def _steps(self) -> int:
        return int(self.strategy.clock[2])

    def _random(self) -> Tensors:
        states = {"cpu": torch.get_rng_state()}
        if self._device().type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device())
        return states

    def _restore_random(self, states: Tensors) -> None:
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and self._device().type == "cuda":
            torch.cuda.set_rng_state(states["cuda"], self._device())

    def _device(self) -> torch.device:
        return self.strategy.device


def not_finite(model: nn.Module) -> str | None:
    """Return the name of a weight that is not finite; None where all are."""
    lent = dict(model.named_buffers())  # learned rows are no part of the state while a run has them
    for name, value in {**model.state_dict(), **lent}.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            return name
    return None
