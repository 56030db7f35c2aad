"""The model of a machine: measured rates that turn counted work into seconds, kept in the user's cache."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft import machine
from weft.errors import FormatError
from weft.format import atomic_write
from weft.plan.rehearse.work import CountedWork

FILE = "machine.json"


@dataclass(frozen=True)
class Machine:
    """What a worker of a machine does in a second, and what its links carry."""

    rates: Mapping[str, float]
    """Seconds a unit of each kind of counted work."""
    sampled_edge: float
    """Seconds to draw an edge of a batch."""
    latency: float
    """Seconds of a message, however small."""
    bandwidth: float
    """Bytes a second between two workers."""
    resident: int
    """Bytes of a process before it holds any data."""
    joined: int
    """Those of a worker that is joined with others."""
    start_seconds: float
    """From the command to the first step, of one process without data."""
    cores: int
    memory: int
    price: float | None = None
    """Dollars an hour of one machine; nobody knows it but the user."""
    workers_each: int | None = None
    """Workers on each machine; None: all on one."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, in the words of `weft doctor`."""

    def seconds(self, work: CountedWork) -> float:
        """Return how long counted work takes one worker that has a core for itself."""
        return sum(self.rates.get(name, 0.0) * count for name, count in work.to_dict().items())

    def sampling(self, phases: Mapping[str, CountedWork]) -> float:
        """Return how long it takes to draw the batches that a forward pass goes over."""
        return self.sampled_edge * phases["forward"].edges if "forward" in phases else 0.0

    def travel(self, size: int, messages: int) -> float:
        """Return how long so many bytes in so many messages take."""
        return messages * self.latency + size / self.bandwidth

    def crowding(self, workers: int) -> float:
        """Return how much slower workers are that share cores."""
        here = workers if self.workers_each is None else min(workers, self.workers_each)
        return max(1.0, here / self.cores)

    def base_bytes(self, workers: int) -> int:
        """Return what a process takes before it holds any data."""
        return self.joined if workers > 1 else self.resident

    def machines(self, workers: int) -> int:
        """Return how many machines so many workers are on."""
        return 1 if self.workers_each is None else -(-workers // self.workers_each)

    def dollars(self, seconds: float, workers: int) -> float | None:
        """Return what so many seconds of the machines cost, where the user said what an hour does."""
        return None if self.price is None else self.machines(workers) * self.price * seconds / 3600.0


def cache_folder() -> Path:
    """Return where a user's measurements are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def read_machine() -> Machine | None:
    """Return the machine that was measured; None where none was, or another one was."""
    path = cache_folder() / FILE
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError:
        raise FormatError(f"{path}: damaged; measure again with weft plan --measure") from None
    if told.get("cores") != machine.usable_cores() or set(told) != set(Machine.__dataclass_fields__):
        return None
    return Machine(**told)


def keep_machine(found: Machine) -> Path:
    """Write what was measured, and return where."""
    path = cache_folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(asdict(found), indent=1).encode())
    return path
