"""What Ray runs for a worker, on the node that it found: it starts the worker's process and follows it.

The class is named, not shipped: nodes import it from their own weft. Of a run it carries words alone, what a
worker prints and how it ended; tensors travel between the workers' processes themselves.
"""

import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from weft.comm.failure import FOLDER_PREFIX

WAIT = 0.2
"""Seconds that one look at a worker may take, where nothing happens."""
_DRAIN = 1.0  # seconds in which what an ended process has printed is read; others may hold its pipes
_HELD = 256  # chunks that nobody has fetched, before the worker waits
_SIOCGIFADDR = 0x8915  # of linux/sockios.h: the address of an interface


class WorkerKeeper:
    """Keeps the process of one worker."""

    def __init__(self) -> None:
        self._printed: queue.Queue[tuple[str, bytes]] = queue.Queue(_HELD)
        self._readers: list[threading.Thread] = []
        self._ended = 0.0

    def address(self) -> str:
        """Return the address of the node that this runs on."""
        import ray

        return str(ray.util.get_node_ip_address())

    def start(self, command: Sequence[str], env: Mapping[str, str], folder: str, address: str) -> str:
        """Start a command of Python's in a folder, on the node at an address; return what is wrong, or ""."""
        if not Path(folder).is_dir():
            return f"node {address} has no folder {folder}; machines need the same folders"
        self._records = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)
        records = Path(self._records.name) / "records"
        records.mkdir()
        self._record = records / f"{env['RANK']}.json"
        told = {"WEFT_FAILURES": str(records), "WEFT_LAUNCHER": str(os.getpid())}
        self._process = subprocess.Popen(
            [sys.executable, *command[1:]],
            env=environment_of(os.environ, {**env, **told}, address),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name, pipe in (("out", self._process.stdout), ("err", self._process.stderr)):
            assert pipe is not None, "both are pipes"
            self._readers.append(threading.Thread(target=self._read, args=(name, pipe), daemon=True))
            self._readers[-1].start()
        return ""

    def look(self) -> dict[str, Any]:
        """Return what was printed since, and how the process ended, None while it runs; waits a little."""
        printed = []
        try:
            printed.append(self._printed.get(timeout=WAIT))
            while True:
                printed.append(self._printed.get_nowait())
        except queue.Empty:
            pass
        code = self._process.poll()
        if code is not None:
            self._ended = self._ended or time.monotonic()
            more = any(reader.is_alive() for reader in self._readers) or not self._printed.empty()
            if more and time.monotonic() - self._ended < _DRAIN:
                code = None
        record = self._record.read_text(encoding="utf-8") if code and self._record.is_file() else ""
        if code is not None:
            self._records.cleanup()  # Ray ends this process without a word
        return {"printed": printed, "code": code, "record": record}

    def end(self) -> None:
        """End the process at once, also one that is stopped."""
        if self._process.poll() is None:
            self._process.kill()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        while chunk := os.read(pipe.fileno(), 1 << 16):
            self._printed.put((name, chunk))


def environment_of(node: Mapping[str, str], given: Mapping[str, str], address: str) -> dict[str, str]:
    """Return the environment of a worker: that of its node less what is Ray's, and what the run gives."""
    # Ray hides GPUs and sets threads of tasks that ask for none; its token is no business of a worker.
    own = {
        name: value
        for name, value in node.items()
        if not name.startswith("RAY_") and name not in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    }
    name = interface_of(address)
    found = {} if name is None else {"GLOO_SOCKET_IFNAME": name}
    return {**found, **own, **given}


def interface_of(address: str) -> str | None:
    """Return the network interface that has an IPv4 address, None where none has it."""
    if address.startswith("127."):
        return "lo"
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None
