"""A Ray of several nodes on this machine: `python ray_nodes.py`, ended when its standard input closes.

Reads a word a line: `add` starts a node of one CPU, `kill` ends the oldest as a loss of power would. It
answers each with the address.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from weft.comm.elastic.ray_home import LOOPBACK, NO_TELEMETRY, end_below

TOKEN = "0123456789abcdef" * 2


class Nodes:
    """The cluster as a test has it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.address = self._told()

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self._told()

    def _told(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "Ray's nodes did not start"
        return str(json.loads(line)["address"])


@contextmanager
def nodes() -> Iterator[Nodes]:
    """Start a head without CPUs and two nodes of one CPU."""
    env = {**os.environ, **environment()}
    command = [sys.executable, str(Path(__file__).resolve())]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env, start_new_session=True)
    try:
        held = Nodes(process)
        held.say("add")
        held.say("add")
        yield held
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def environment() -> dict[str, str]:
    """Return what Ray's nodes and who uses them need."""
    return {**NO_TELEMETRY, **LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}


def main() -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans come to this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = tempfile.TemporaryDirectory(prefix="weft-ray-", ignore_cleanup_errors=True)
    os.environ["RAY_TMPDIR"] = folder.name
    (Path(folder.name) / "ray").mkdir()  # where the address is noted, before Ray makes it
    words = sys.stdout
    sys.stdout = sys.stderr  # Ray prints
    try:
        serve(words)
    finally:
        end_below(os.getpid())
        folder.cleanup()


def serve(words: Any) -> None:
    from ray.cluster_utils import Cluster

    least = {"object_store_memory": 80 << 20, "include_dashboard": False}
    head = {"num_cpus": 0, **least}
    cluster = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
    held: list[Any] = []
    words.write(json.dumps({"address": cluster.address}) + "\n")
    words.flush()
    for line in sys.stdin:
        if line.strip() == "add":
            held.append(cluster.add_node(num_cpus=1, **least))
        if line.strip() == "kill":
            with suppress(AssertionError):
                cluster.remove_node(held.pop(0), allow_graceful=False)
        words.write(json.dumps({"address": cluster.address, "time": time.time()}) + "\n")
        words.flush()


if __name__ == "__main__":
    main()
