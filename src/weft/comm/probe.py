"""How fast each pair of ranks is: measured once at the start, in about a second.

Ranks send to one another in rounds: in round r everybody sends to the r-th rank after itself, so that every
link is used alone at its ends. A small message first tells how large the second may be.
"""

import time

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label

SECONDS = 1.0
_FIRST = 1 << 15
_MOST = 1 << 22
_LABEL = Label("probe")


def measure(group: Group, *, seconds: float = SECONDS) -> Tensor:
    """Return the bytes a second from each member (row) to each other (column), the same on all members.

    What a member would send to itself is free, and infinitely fast.
    """
    if group.size == 1:
        return torch.full((1, 1), torch.inf, dtype=torch.float64)
    _round_trip(group, _FIRST)  # connections are made on first use
    speed = _round_trip(group, _FIRST)
    slowest = float(speed[~torch.eye(group.size, dtype=torch.bool)].min())
    size = int(min(max(slowest * seconds / (2 * (group.size - 1)), _FIRST), _MOST))
    return _round_trip(group, size)


def _round_trip(group: Group, size: int) -> Tensor:
    arrived = torch.full((group.size, group.size), torch.inf, dtype=torch.float64)
    message = torch.zeros(size, dtype=torch.uint8)
    for turn in range(1, group.size):
        after, before = (group.rank + turn) % group.size, (group.rank - turn) % group.size
        send = [size if member == after else 0 for member in range(group.size)]
        receive = [size if member == before else 0 for member in range(group.size)]
        group.barrier()
        began = time.perf_counter()
        group.all_to_all(message, send, receive, label=_LABEL).wait()
        arrived[before, group.rank] = size / max(time.perf_counter() - began, 1e-9)
    # Each member knows what arrived with it, a column.
    return group.all_reduce(arrived, "min", label=_LABEL).wait()
