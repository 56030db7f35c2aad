"""A tensor worker: `python -m weft.strategies.tensor_workers.worker FD`, a socket that it was born with.

It keeps nothing but the weights it was last given, by name and version, and ends when the socket does.
"""

import os
import signal
import socket
import sys
from collections import OrderedDict

import torch
from torch import Tensor

from weft.errors import WeftError
from weft.process import end_with
from weft.strategies.tensor_workers.frames import Frame, receive, send
from weft.strategies.tensor_workers.operators import OPERATORS

KEPT = 64
"""Weights that are kept, the ones used last."""


class Products:
    """Does tasks by the name of their operators, with the weights it was given."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def asked(self, task: Frame) -> Frame:
        """Return the answer to a task, or which weights are needed first; refuse what has no name here."""
        if task.kind != "task" or task.name not in OPERATORS:
            raise WeftError(f"tensor worker: asked for {task.kind} {task.name!r}, which it does not do")
        missing = [name for name in task.weights if name not in self._kept]
        if missing:
            return Frame("pull", task.number, weights=missing)
        for name in task.weights:
            self._kept.move_to_end(name)
        weights = [self._kept[name] for name in task.weights]
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return Frame("answer", task.number, arrays=OPERATORS[task.name](task.arrays, weights))

    def given(self, pull: Frame, weights: Frame) -> None:
        """Keep the weights that were asked for."""
        if weights.kind != "weights" or [*weights.weights] != [*pull.weights]:
            raise WeftError(f"tensor worker: asked for weights, got {weights.kind} {weights.weights}")
        self._kept.update(zip(weights.weights, weights.arrays, strict=True))


def serve(stream: socket.socket) -> None:
    """Answer tasks until the other end closes."""
    products = Products()
    send(stream, Frame("ready"))
    while True:
        task = receive(stream)
        while (answer := products.asked(task)).kind == "pull":
            send(stream, answer)
            products.given(answer, receive(stream))
        send(stream, answer)


def main() -> None:
    """Serve on the socket whose number is the only argument."""
    end_with(os.getppid())  # also where this process is stopped when its run dies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the run, which closes the socket
    torch.set_num_threads(1)
    with socket.socket(fileno=int(sys.argv[1])) as stream:
        try:
            serve(stream)
        except (ConnectionError, OSError):
            pass
        except WeftError as error:
            sys.stderr.write(f"weft: {error}\n")
            sys.exit(2)


if __name__ == "__main__":
    main()
