"""All of it together: the model of this machine."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from weft import machine
from weft.errors import WeftError
from weft.plan.machine import Machine
from weft.plan.measure import kernels, processes, trials
from weft.plan.measure.fit import fitted
from weft.sizes import shown

_Found = TypeVar("_Found")
# What is assumed where processes cannot be started or joined here: those of a machine of some years ago.
PROCESS = processes.TinyRun(bytes=400 << 20, seconds=4.0)
LINK = processes.LinkSpeed(call=1e-4, latency=1e-4, bandwidth=5e8)


def measure_machine(tell: Callable[[str], None] = lambda line: None) -> Machine:
    """Return what this machine does in a second; takes half a minute where it has nothing else to do.

    What cannot be measured is assumed, and said to be.
    """
    cores = machine.usable_cores()
    threads = sorted({1, cores})
    tell("rates of kernels")
    by_threads = _rates(threads, tell)
    tell("start of processes, messages between them")
    missing: list[str] = []
    alone = _or_assumed(lambda: processes.tiny_run(1), PROCESS, missing)
    joined = _or_assumed(lambda: processes.tiny_run(2), PROCESS, missing)
    link = _or_assumed(processes.link, LINK, missing)
    told = {
        **{
            f"{name}, {count} thread{'s' if count > 1 else ''}": word
            for count in threads
            for name, word in by_threads[count][1].items()
        },
        "calls between workers": f"{link.call * 1e6:.0f} µs",
        "messages": f"{link.latency * 1e6:.0f} µs, {link.bandwidth / 1e6:.0f} MB/s",
        "start": f"{alone.seconds:.1f} s, {shown(alone.bytes)}",
        **({"assumed, not measured": "; ".join(dict.fromkeys(missing))} if missing else {}),
    }
    return Machine(
        by_threads[1][0],
        by_threads[cores][0],
        cores,
        call=link.call,
        latency=link.latency,
        bandwidth=link.bandwidth,
        resident=alone.bytes,
        joined=joined.bytes,
        start_seconds=alone.seconds,
        cores=cores,
        memory=machine.free_memory(),
        measured=told,
    )


def _rates(
    threads: Sequence[int], tell: Callable[[str], None]
) -> dict[int, tuple[dict[str, float], dict[str, str]]]:
    """Return for each number of threads the rates of counted work, and those of kernels in words."""
    found = {}
    rehearsed = list(trials.rehearsals())
    for count in threads:
        tell(f"rates and trial runs, {count} thread{'s' if count > 1 else ''}")
        with _threads(count):
            known, told = kernels.rates()
            drawn = kernels.sampled_edge()
            told["edges of batches"] = f"{1 / drawn / 1e6:.1f} M edges/s"
            seen = [each for trial in rehearsed for each in trials.observations(trial)]
            found[count] = {**fitted(known, seen), "drawn": drawn}, told
    return found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _or_assumed(measure: Callable[[], _Found], otherwise: _Found, missing: list[str]) -> _Found:
    """Return what is measured; where that fails, what is assumed, with a word why."""
    try:
        return measure()
    except (WeftError, OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        why = f"took longer than {processes.LIMIT:g} s" if "timed out" in str(error) else str(error)
        missing.append(f"{otherwise}: {why.splitlines()[0] if why else type(error).__name__}")
        return otherwise
