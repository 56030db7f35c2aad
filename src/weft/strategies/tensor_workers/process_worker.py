"""A tensor worker as a process of this machine, behind a pair of sockets without a name."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from torch import Tensor

from weft.errors import TrainingError
from weft.strategies.tensor_workers.frames import Frame, receive, send

START = 120.0
"""Seconds that a worker may take to be placed and to import torch."""
LEAVE = 5.0
"""Seconds that one may take to end."""


class TaskDone(NamedTuple):
    """An answer, what was sent for it in bytes, and how many weights were asked for."""

    answer: Frame
    sent: int
    pulls: int


class TensorWorker(Protocol):
    """One worker as the pool has it. `run` is called by one thread, `end` by any."""

    @property
    def pid(self) -> int | None:
        """Its process, where that is one of this machine."""

    def start(self) -> None:
        """Have it ready; raise ConnectionError where it ends before."""

    def run(self, task: Frame, weights: Mapping[str, Tensor]) -> TaskDone:
        """Send a task, give the weights that are asked for, and return the answer."""

    def end(self, *, kill: bool) -> None:
        """Have it end; at once where it may not look."""

    def reap(self, seconds: float) -> None:
        """Leave nothing of it behind."""

    def was_killed(self) -> bool:
        """Return whether somebody else ended it."""


class ProcessWorker:
    """Starts `worker.py`, and speaks with it in frames."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The process, once it was started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, which is given its socket, and wait until it is ready."""
        own, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "weft.strategies.tensor_workers.worker", str(theirs.fileno())]
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._stream = own
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), env=env, stdin=subprocess.DEVNULL
            )
        own.settimeout(START)
        if receive(own).kind != "ready":
            raise TrainingError("a tensor worker began with something else than that it is ready")
        own.settimeout(None)

    def run(self, task: Frame, weights: Mapping[str, Tensor]) -> TaskDone:
        """Send a task, give the weights that are asked for one by one, and return the answer."""
        assert self._stream is not None, "it was opened at the start"
        sent, pulls = send(self._stream, task), 0
        while (frame := receive(self._stream)).kind == "pull":
            sent += send(self._stream, weights_asked(frame, weights))
            pulls += len(frame.weights)
        return TaskDone(frame, sent, pulls)

    def end(self, *, kill: bool) -> None:
        """Close the socket, at which the process ends; kill it where it may not look."""
        if self._stream is not None:
            with suppress(OSError):
                self._stream.shutdown(socket.SHUT_RDWR)
        if kill and self._process is not None and self._process.poll() is None:
            self._process.kill()

    def reap(self, seconds: float) -> None:
        """Leave no process and no socket behind."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(LEAVE)
        if self._stream is not None:
            self._stream.close()

    def was_killed(self) -> bool:
        """Return whether a signal ended the process."""
        code = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1.0)
        return code is not None and code < 0


def weights_asked(pull: Frame, weights: Mapping[str, Tensor]) -> Frame:
    """Return what answers a worker that asks for weights of its task."""
    unknown = [name for name in pull.weights if name not in weights]
    if unknown or not pull.weights:
        raise TrainingError(f"a tensor worker asked for {unknown}, which are no weights of its task")
    return Frame(
        "weights", pull.number, weights=pull.weights, arrays=[weights[name] for name in pull.weights]
    )
