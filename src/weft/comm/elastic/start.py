"""How a worker is started, and what its environment tells it."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from weft import machine
from weft.comm.launch import ADDRESS
from weft.comm.run_store import TOKEN
from weft.process import environment, set_by_user


class Process(Protocol):
    """A process that was started, as `subprocess` has it, here or on another machine."""

    @property
    def placed(self) -> bool:
        """Whether there is a machine for it; a cluster may have no room yet."""

    @property
    def machine_lost(self) -> bool:
        """Whether it ended because its machine went, and not by itself."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Return the exit code when it has ended."""


Spawn = Callable[[dict[str, str]], Process]
"""Starts a worker, whose environment is that of its machine and what is given."""


@dataclass(frozen=True)
class Size:
    """How many workers there may be, and how many parts they hold between them."""

    least: int
    most: int
    parts: int


@dataclass(frozen=True)
class Home:
    """Where workers find the launcher, and where they leave word of what ended them."""

    address: str
    port: int
    records: Path
    stall: float
    token: str
    began: float = field(default_factory=time.time)

    def told(self, number: int, size: Size) -> dict[str, str]:
        """Return the environment of a worker by its number."""
        return {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(max(size.most, number + 1, 2)),
            "LOCAL_WORLD_SIZE": "0",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            **({"GLOO_SOCKET_IFNAME": "lo"} if self.address == ADDRESS else {}),
            "WEFT_MEMBER": str(number),
            "WEFT_LAUNCHER": str(os.getpid()),
            "WEFT_BEGAN": f"{self.began:.3f}",
            "WEFT_FAILURES": str(self.records),
            "WEFT_STALL": f"{self.stall:g}",
            TOKEN: self.token,
        }


def defaults(size: Size) -> dict[str, str]:
    """Return the environment of workers where the user has not set it.

    Threads are as many for each part however many workers there are: products may depend on them.
    """
    chosen = {
        **environment(),
        "OMP_NUM_THREADS": str(max(1, machine.usable_cores() // size.parts)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    return {name: value for name, value in chosen.items() if not set_by_user(name)}


class HereProcess(subprocess.Popen[bytes]):
    """A process of this machine: there is room at once, and it does not outlive who watches it."""

    placed, machine_lost = True, False


def started_here(command: Sequence[str], env: dict[str, str]) -> Process:
    """Start a command as a process of this machine."""
    return HereProcess(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL)
