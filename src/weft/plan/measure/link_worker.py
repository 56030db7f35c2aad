"""One of two workers that measure the link between them; rank 0 writes what was found."""

import json
import statistics
import sys
import time
from pathlib import Path

from weft.comm.group import Group
from weft.comm.probe import measure

_TURNS = 60


def main(path: str) -> None:
    """Measure the seconds of a small message and the bytes a second of a large one."""
    with Group.connect() as group:
        taken = []
        for _ in range(_TURNS):
            began = time.perf_counter()
            group.barrier()
            taken.append(time.perf_counter() - began)
        speed = measure(group, seconds=0.5)
        if group.rank == 0:
            # A sum over two members is two messages each, one after the other.
            found = {"latency": statistics.median(taken) / 2, "bandwidth": float(speed[0, 1])}
            Path(path).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
