"""One of two workers that measure the link between them; rank 0 writes what was found."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from weft.comm.group import Group
from weft.comm.probe import measure

_TURNS = 60


def main(path: str) -> None:
    """Measure the seconds of a call and of a small message, and the bytes a second of a large one."""
    with Group.connect() as group:
        row = torch.zeros(2, 1)
        swapped = _median(lambda: group.all_to_all(row, [1, 1], [1, 1]).wait())
        summed = _median(group.barrier)
        speed = measure(group, seconds=0.5)
        if group.rank == 0:
            # Rows are one message each way, at one time; a sum over two members is two, one after the other.
            latency = min(max(summed - swapped, summed / 10), swapped)
            found = {"call": swapped - latency, "latency": latency, "bandwidth": float(speed[0, 1])}
            Path(path).write_text(json.dumps(found), encoding="utf-8")


def _median(call: Callable[[], object]) -> float:
    """Return the seconds of a call that both workers make."""
    taken = []
    for _ in range(_TURNS):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


if __name__ == "__main__":
    main(sys.argv[1])
