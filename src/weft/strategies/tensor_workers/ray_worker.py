"""A tensor worker as an actor of Ray, on whatever node has room for it.

Nodes run `TensorActor` from their own weft, by its name. What Ray carries for it is one value of bytes a
call, the frames that processes are sent, so neither side unpickles anything of ours.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from weft import __version__
from weft.errors import TrainingError
from weft.strategies.tensor_workers.frames import Frame, decoded, encoded
from weft.strategies.tensor_workers.process_worker import START, TaskDone, weights_asked
from weft.strategies.tensor_workers.worker import Products

_LOOK = 0.2
"""Seconds between two looks whether a worker was given up."""


class TensorActor:
    """Does tasks on a node. It keeps weights, and a task for which it has asked for some."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._products = Products()
        self._task, self._pull = Frame(""), Frame("")

    def ready(self) -> bytes:
        """Say that torch is imported, and which weft this is."""
        return encoded(Frame("ready", name=__version__))

    def run(self, task: bytes) -> bytes:
        """Return the answer to a task, or which weights are needed first."""
        self._task = decoded(task)
        return self._answer()

    def give(self, weights: bytes) -> bytes:
        """Take the weights of the last task, and return its answer."""
        self._products.given(self._pull, decoded(weights))
        return self._answer()

    def _answer(self) -> bytes:
        found = self._products.asked(self._task)
        if found.kind == "pull":
            self._pull = found
        return encoded(found)


class RayWorker:
    """Has Ray place an actor, and speaks with it in frames."""

    pid = None

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._actor: Any = None
        self._given_up = threading.Event()

    def start(self) -> None:
        """Have Ray find a node with a free core, and wait until the actor is ready."""
        placed = self._ray.remote(TensorActor).options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._actor = placed.remote()
        ready = self._asked(self._actor.ready.remote(), time.monotonic() + START)
        if ready.kind != "ready" or ready.name != __version__:
            raise TrainingError(f"a node of Ray has weft {ready.name or 'unknown'}, this is {__version__}")

    def run(self, task: Frame, weights: Mapping[str, Tensor]) -> TaskDone:
        """Send a task, give the weights that are asked for, and return the answer."""
        data = encoded(task)
        sent, pulls = len(data), 0
        frame = self._asked(self._actor.run.remote(data))
        while frame.kind == "pull":
            data = encoded(weights_asked(frame, weights))
            sent, pulls = sent + len(data), pulls + len(frame.weights)
            frame = self._asked(self._actor.give.remote(data))
        return TaskDone(frame, sent, pulls)

    def end(self, *, kill: bool) -> None:
        """Have Ray end the actor; a call that is under way is given up."""
        self._given_up.set()
        if self._actor is not None:
            try:
                self._ray.kill(self._actor)
            except (self._ray.exceptions.RayError, ValueError, RuntimeError):
                return  # it is gone, or Ray is

    def reap(self, seconds: float) -> None:
        """Ray leaves nothing behind."""

    def was_killed(self) -> bool:
        """Return False: why an actor could not begin is for Ray to say."""
        return False

    def _asked(self, reference: Any, until: float | None = None) -> Frame:
        while not self._given_up.is_set():
            try:
                return decoded(self._ray.get(reference, timeout=_LOOK))
            except self._ray.exceptions.GetTimeoutError:
                if until is not None and time.monotonic() > until:
                    raise ConnectionError(
                        f"Ray has had no room for a tensor worker for {START:g} s"
                    ) from None
            except self._ray.exceptions.RayError as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                raise ConnectionError(lines[-1] if lines else type(error).__name__) from None
        raise ConnectionError("a tensor worker was given up")
