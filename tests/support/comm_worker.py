"""A rank that exchanges rows step by step and on one rank does one thing wrong.

`comm_worker.py WHAT [RANK] [FOLDER]` is started by `run_workers` and by torchrun alike.
"""

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path

import torch
from comm_jobs import halo, whole_graph

from weft.comm import Group, HaloPlan, guarded
from weft.errors import FormatError
from weft.graph.parts.shard import make_shards


def main() -> int:
    what = sys.argv[1]
    guilty = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    folder = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    rank = int(os.environ["RANK"])
    if what == "early" and rank == guilty:
        raise FormatError("part-00001 is truncated")
    if what == "restart" and rank == guilty and attempt() != "0":
        time.sleep(2)  # the others must wait for it, and not find what it left in the attempt before
    with Group.connect() as group:
        if folder is not None:
            (folder / f"{group.attempt}-{group.rank}.pid").write_text(str(os.getpid()))
        if what == "check":
            for kind in ("random", "hub"):
                halo(group, kind, 1, scattered=True)
        elif what == "refuse":
            group.agree(recipe="a" if group.rank == guilty else "b")
        else:
            steps(group, what, guilty, folder)
        group.barrier()
        if group.rank == 0:
            print(f"done {group.size} attempt {group.attempt}", flush=True)
        else:
            print("hello", flush=True)
    return 0


def steps(group: Group, what: str, guilty: int, folder: Path | None) -> None:
    """Exchange halo rows for a long time; after a few steps the guilty rank does what it was told."""
    shard = make_shards(whole_graph("random"), (torch.arange(30) * group.size // 30).int())[group.rank]
    plan = HaloPlan.make(shard, group)
    x = torch.ones(plan.num_rows, 8)
    for step in range(100_000):
        plan.pull(group, x, background=step % 2 == 0).wait()
        time.sleep(0.01)
        if step == 5 and folder is not None:
            (folder / f"{group.attempt}-{group.rank}.ready").write_text("")
        if step == 10 and what in ("restart", "apart"):
            if group.attempt == 0 and group.rank == guilty:
                os._exit(7)
            if group.attempt == 0 and what == "apart":
                time.sleep(12)  # it notices nothing, and only the machine of the other one has failed
            if group.attempt > 0:
                return
        if step == 10 and group.rank == guilty:
            if what == "raise":
                broken_model()
            if what == "segfault":
                faulthandler._sigsegv()
        if step == 3 and what == "deaf":
            signal.signal(signal.SIGTERM, lambda *_: ignore(folder, group.rank))


def ignore(folder: Path | None, rank: int) -> None:
    """Note that SIGTERM came, and go on for longer than anybody waits."""
    assert folder is not None
    (folder / f"{rank}.terminated").write_text("")
    time.sleep(600)


def attempt() -> str:
    return os.environ.get("WEFT_ATTEMPT", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def broken_model() -> None:
    raise ValueError("bad weights")


if __name__ == "__main__":
    raise SystemExit(guarded(main))
