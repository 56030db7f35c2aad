"""The model of a machine: measured rates that turn counted work into seconds, kept in the user's cache."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft import machine
from weft.errors import FormatError
from weft.format import atomic_write
from weft.plan.cores import Cores
from weft.plan.rehearse.work import CountedWork
from weft.reading.json_values import Amount, Each, Maybe, WholeNumber, expect_shape, read_json
from weft.train.saved.prices import Prices

FILE = "machine.json"
_RATES = dict.fromkeys(CountedWork().to_dict(), Amount())
_SHAPE = {
    "rates": _RATES,
    "shared_rates": _RATES,
    "threads": WholeNumber(least=1),
    "measured": Each(str),
    "call": Amount(),
    "calls": Each(Amount()),
    "calls_of": Each(Each(Amount())),
    "lags": Each(Amount()),
    "latency": Amount(),
    "bandwidth": Amount(least=1.0),
    "resident": WholeNumber(),
    "joined": WholeNumber(),
    "start_seconds": Amount(),
    "memory": WholeNumber(),
    "prices": type(None),
    "workers_each": Maybe(WholeNumber(least=1)),
}


@dataclass(frozen=True)
class Machine:
    """What a worker of a machine does in a second, and what its links carry."""

    rates: Mapping[str, float]
    """Seconds a unit of each kind of counted work takes one thread."""
    shared_rates: Mapping[str, float]
    """The same where `threads` threads share the work."""
    threads: int
    call: float
    """Seconds of a call that sends or sums, beside those of its messages."""
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
    """Bytes of one machine, for all workers on it."""
    prices: Prices | None = None
    """What an hour of one machine costs; nobody knows it but the user."""
    workers_each: int | None = None
    """Workers on each machine; None: all on one."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a call among so many workers of this machine, by their number, as trial runs took it."""
    calls_of: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same of kinds of runs whose calls take otherwise, by the name of a strategy or exchange."""
    lags: Mapping[str, float] = field(default_factory=dict)
    """Seconds by which the first of so many workers begins an epoch before the last."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, in the words of `weft doctor`."""

    def seconds(self, work: CountedWork, workers: int = 1, threads: int | None = None) -> float:
        """Return how long counted work takes one worker of so many, with the threads that a run gives it."""
        counts = work.to_dict().items()
        return sum(self.rate(name, workers, threads) * count for name, count in counts if count)

    def rate(self, name: str, workers: int, threads: int | None = None) -> float:
        """Return the seconds of a unit of work for one of so many workers, or for so many threads.

        Between one thread and those that were measured by Amdahl's law; more are not believed to be faster.
        """
        alone = self.rates[name]
        threads = threads or self.threads_of(workers)
        if threads == 1:
            return alone
        divided = (alone - self.shared_rates[name]) / (1 - 1 / self.threads)
        return alone - divided * (1 - 1 / threads)

    def threads_of(self, workers: int) -> int:
        """Return the threads that a run gives each of so many workers, as far as they make it faster."""
        return min(self.threads, max(1, self.cores // self.on_one(workers)))

    def call_among(self, workers: int, kinds: Sequence[str] = ()) -> float:
        """Return the seconds of a call among workers of this machine: the more they are, the longer.

        Of the `kinds` of a run the first that was tried counts; by default that of most runs.
        """
        for kind in kinds:
            if kind in self.calls_of:
                return _among(self.calls_of[kind], workers)
        return _among(self.calls, workers) if self.calls else self.call * max(1.0, workers / self.cores)

    def lag_among(self, workers: int) -> float:
        """Return by how much workers of this machine begin an epoch after each other."""
        return _among(self.lags, workers) if self.lags and workers > 1 else 0.0

    def cores_among(self, workers: int) -> Cores:
        """Return the cores of so many workers, whatever the links between them."""
        return Cores(self.cores, self.on_one(workers), self.threads_of(workers))

    def on_one(self, workers: int) -> int:
        """Return how many of so many workers one machine has at most."""
        return workers if self.workers_each is None else min(workers, self.workers_each)

    def crowded(self, workers: int) -> bool:
        """Return whether so many workers share cores."""
        return self.on_one(workers) > self.cores

    def taking_turns(self, seconds: Sequence[float]) -> list[float]:
        """Return how long workers take, each of which has so many seconds of work.

        Those that share the cores of a machine are through when the cores are with all of it.
        """
        if not self.crowded(len(seconds)):
            return list(seconds)
        each, found = self.on_one(len(seconds)), list[float]()
        for first in range(0, len(seconds), each):
            held = seconds[first : first + each]
            found += [max(own, sum(held) / self.cores) for own in held]
        return found

    def room(self, workers: int) -> int:
        """Return the bytes that each of so many workers may take: those on one machine share its memory."""
        return self.memory // self.on_one(workers)

    def base_bytes(self, workers: int) -> int:
        """Return what a process takes before it holds any data."""
        return self.joined if workers > 1 else self.resident

    def dollars(self, seconds: float, workers: int) -> float | None:
        """Return what so many seconds of the machines cost, where the user said what an hour does."""
        return None if self.prices is None else float(self.prices.cost(seconds, workers)["dollars"])


def _among(tried: Mapping[str, float], workers: int) -> float:
    """Return a value by the number of workers: on a line between those tried, beyond them in proportion."""
    numbers, values = zip(*sorted((int(number), value) for number, value in tried.items()))
    beyond = max(1.0, workers / float(numbers[-1]))
    return float(np.interp(workers, numbers, values)) * beyond


def cache_folder() -> Path:
    """Return where a user's measurements are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def read_machine() -> Machine | None:
    """Return the machine that was measured, with the memory that is free now; None where none, or another."""
    path = cache_folder() / FILE
    if not path.exists():
        return None
    try:
        told = read_json(path, {"cores": WholeNumber(least=1)})
        if told["cores"] != machine.usable_cores() or set(told) != set(Machine.__dataclass_fields__):
            return None
        expect_shape(told, _SHAPE, path)
    except FormatError as error:
        raise FormatError(f"{error}; measure again with weft plan --measure") from None
    return replace(Machine(**told), memory=machine.free_memory())


def keep_machine(found: Machine) -> Path:
    """Write what was measured, and return where."""
    path = cache_folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(asdict(found), indent=1).encode())
    return path
