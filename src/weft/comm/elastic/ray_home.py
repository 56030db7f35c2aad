"""A Ray of this machine alone, for as long as a launcher lives: `python -m weft.comm.elastic.ray_home CPUS`.

Ray's own processes come and go beside those of its start: agents of a node outlive it when they are ended in
the wrong order. So it has a process above it that is told every orphan below it, and ends all of them by id
when its standard input closes, however the launcher came to its end.
"""

import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.errors import WorkerLost
from weft.registry import require

START = 180.0
"""Seconds that Ray has to start: it loads for long on a busy machine."""
NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""For every Ray; the second one leaves a note unsaid."""
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's name for what it does on laptops: 127.0.0.1 stays what it is, and servers listen there alone."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_STORE = 80 << 20  # bytes of Ray's own store of objects, the least that it takes; nothing of ours is in it


@contextmanager
def ray_here(cpus: int) -> Iterator[str]:
    """Start a Ray that has so many CPUs, on loopback; give its address, and leave nothing of it behind."""
    if find_spec("ray") is None:
        require("ray", "ray")
    os.environ |= {
        **NO_TELEMETRY,
        **LOOPBACK,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
    }
    command = [sys.executable, "-m", __name__, str(cpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as home:
        assert home.stdin is not None, "it is a pipe"
        assert home.stdout is not None, "it is a pipe"
        try:
            line = home.stdout.readline()
            if not line:
                raise WorkerLost("Ray did not start on this machine; see what it said above")
            yield json.loads(line)["address"]
        finally:
            home.stdin.close()
            home.wait()


@cache
def _token() -> str:
    """Return the token of this process: Ray reads it once, whatever it is told later."""
    return secrets.token_hex(32)


def main(cpus: int) -> int:
    """Start Ray, say where, and end it with the launcher."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C reaches the whole process group; the launcher decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="weft-ray-", ignore_cleanup_errors=True) as folder:
        try:
            address = _start(cpus, Path(folder))
            sys.stdout.write(json.dumps({"address": address}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            end_below(os.getpid())
    return 0


def _start(cpus: int, folder: Path) -> str:
    import ray

    signal.signal(signal.SIGALRM, _late)
    signal.alarm(int(START))
    context = ray.init(
        num_cpus=cpus,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=_STORE,
        _temp_dir=str(folder),
    )
    signal.alarm(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray has set its own
    return str(context.address_info["gcs_address"])


def _late(*_: Any) -> None:
    raise WorkerLost(f"Ray has not started within {START:g} s")


def end_below(process: int, *, seconds: float = 10.0) -> None:
    """End all processes below one of this machine, by their ids; orphans have come to it."""
    deadline = time.monotonic() + seconds
    while (below := children_of(process)) and time.monotonic() < deadline:
        for child in below:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        time.sleep(0.05)


def children_of(process: int) -> list[int]:
    """Return all processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    below = {process}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sorted(below - {process})


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
