"""A tensor worker: `python -m weft.strategies.tensor_workers.worker FD`, a socket that it was born with.

It keeps nothing but the weights it was last given, by name and version, and ends when the socket does.
"""

import ctypes
import signal
import socket
import sys
from collections import OrderedDict

import torch
from torch import Tensor

from weft.errors import WeftError
from weft.strategies.tensor_workers.frames import Frame, receive, send
from weft.strategies.tensor_workers.operators import OPERATORS

KEPT = 64
"""Weights that are kept, the ones used last."""
_DEATH_SIGNAL = 1


def serve(stream: socket.socket) -> None:
    """Answer tasks until the other end closes."""
    cache: OrderedDict[str, Tensor] = OrderedDict()
    send(stream, Frame("ready"))
    while True:
        task = receive(stream)
        if task.kind != "task" or task.name not in OPERATORS:
            raise WeftError(f"tensor worker: asked for {task.kind} {task.name!r}, which it does not do")
        weights = [_weight(stream, cache, name) for name in task.weights]
        send(stream, Frame("answer", task.number, arrays=OPERATORS[task.name](task.arrays, weights)))


def _weight(stream: socket.socket, cache: "OrderedDict[str, Tensor]", name: str) -> Tensor:
    """Return a weight of a version, pulled where it is not here."""
    if name not in cache:
        send(stream, Frame("pull", name=name))
        given = receive(stream)
        if given.kind != "weight" or given.name != name or len(given.arrays) != 1:
            raise WeftError(f"tensor worker: asked for the weight {name!r}, got {given.kind} {given.name!r}")
        cache[name] = given.arrays[0]
    cache.move_to_end(name)
    while len(cache) > KEPT:
        cache.popitem(last=False)
    return cache[name]


def main() -> None:
    """Serve on the socket whose number is the only argument."""
    if sys.platform == "linux":  # also where this process is stopped when its run dies
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
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
