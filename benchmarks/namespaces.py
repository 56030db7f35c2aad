"""A network of chosen speed on this machine: one namespace a rank, joined by veth pairs to a bridge.

Needs root and iproute2. `tbf` limits what leaves each namespace and what enters it. Everything is named after
this process, bounded in time, and removed at the end, on an error and on a signal alike.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

COMMAND_SECONDS = 10.0
PORT = 29_700
MBIT = 1_000_000


def missing() -> str:
    """Return why this machine cannot have such a network, nothing where it can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs {tool} of iproute2"
    try:
        with Network(1) as network:
            network.limit([1000])
    except (OSError, subprocess.SubprocessError) as error:
        return f"namespaces cannot be made here ({error})"
    return ""


class Network:
    """Some namespaces with one address each, 198.18.0.1 and on; a context that leaves nothing behind."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bridge = f"wfb{os.getpid()}"
        self.names = [f"weft{os.getpid()}r{rank}" for rank in range(size)]
        self.outer = [f"wf{os.getpid()}r{rank}" for rank in range(size)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Network":
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, _leave)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def limit(self, rates: Sequence[int | None]) -> None:
        """Set the speed of each namespace's link, in Mbit/s, both ways; None: as fast as it goes."""
        for name, outer, rate in zip(self.names, self.outer, rates, strict=True):
            for command in (["tc", "-n", name], ["tc"]):
                device = "eth0" if len(command) > 1 else outer
                _call([*command, "qdisc", "del", "dev", device, "root"], check=False)
                if rate is None:
                    continue
                # A burst of 5 ms keeps bulk transfers near the rate; less than 64 KiB starves them.
                burst = max(64 * 1024, rate * MBIT // 8 // 200)
                shape = ["tbf", "rate", f"{rate}mbit", "burst", str(burst), "latency", "100ms"]
                _call([*command, "qdisc", "add", "dev", device, "root", *shape])

    def run(
        self,
        command: Sequence[str],
        workers: int,
        *,
        env: Mapping[str, str] | None = None,
        limit: float = 1800.0,
        quiet: bool = False,
    ) -> int:
        """Run a command as one rank a namespace and return the first exit code that is not 0.

        With `quiet` nobody hears what the ranks write to their output.
        """
        assert workers == self.size, "one namespace a rank"
        self.processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                env={**os.environ, **(env or {}), **self._place(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
            )
            for rank, name in enumerate(self.names)
        ]
        deadline = time.monotonic() + limit
        try:
            while time.monotonic() < deadline:
                codes = [process.poll() for process in self.processes]
                if any(codes) or all(code == 0 for code in codes):
                    return next((code for code in codes if code), 0)
                time.sleep(0.1)
            return 124
        finally:
            self._end()

    def close(self) -> None:
        """Remove everything that was made; what is not there is no error."""
        self._end()
        for name in self.names:
            _call(["ip", "netns", "del", name], check=False)
        for device in (*self.outer, self.bridge):
            _call(["ip", "link", "del", device], check=False)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _build(self) -> None:
        _call(["ip", "link", "add", self.bridge, "type", "bridge"])
        _call(["ip", "link", "set", self.bridge, "up"])
        for rank, (name, outer) in enumerate(zip(self.names, self.outer)):
            _call(["ip", "netns", "add", name])
            _call(["ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name])
            _call(["ip", "link", "set", outer, "master", self.bridge, "up"])
            _call(["ip", "-n", name, "addr", "add", f"{_address(rank)}/24", "dev", "eth0"])
            _call(["ip", "-n", name, "link", "set", "eth0", "up"])
            _call(["ip", "-n", name, "link", "set", "lo", "up"])

    def _place(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": _address(0),
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": "eth0",
            "WEFT_TIMEOUT": "600",
            "WEFT_STALL": "300",
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # addresses without a name are warned of at each connection
        }

    def _end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait(COMMAND_SECONDS)
        self.processes = []


def _address(rank: int) -> str:
    return f"198.18.0.{rank + 1}"


def _call(command: list[str], *, check: bool = True) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # through every `finally`
