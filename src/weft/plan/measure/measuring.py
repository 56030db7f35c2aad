"""All of it together: the model of this machine."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from weft import machine
from weft.errors import WeftError
from weft.plan.machine import Machine
from weft.plan.measure import kernels, processes, trials
from weft.plan.measure.calls import call_of_kind, call_seconds
from weft.plan.measure.fit import Observation, fitted
from weft.plan.measure.trials import TrialRun, run_trials
from weft.plan.rehearse.work import CountedWork
from weft.sizes import shown

_Found = TypeVar("_Found")
# What is assumed where processes cannot be started or joined here: those of a machine of some years ago.
PROCESS = processes.TinyRun(bytes=400 << 20, seconds=4.0)
LINK = processes.LinkSpeed(call=1e-4, latency=1e-4, bandwidth=5e8)


TOGETHER = (2, 4)
"""Numbers of workers whose calls are measured."""


def measure_machine(tell: Callable[[str], None] = lambda line: None) -> Machine:
    """Return what this machine does in a second; takes a minute or two where it has nothing else to do.

    What cannot be measured is assumed, and said to be.
    """
    cores = machine.usable_cores()
    threads = sorted({1, cores})
    tell("rates of kernels")
    by_threads = {count: _kernels(count) for count in threads}
    tell("start of processes, messages between them")
    missing: list[str] = []
    alone = _or_assumed(lambda: processes.tiny_run(1), PROCESS, missing)
    joined = _or_assumed(lambda: processes.tiny_run(2), PROCESS, missing)
    link = _or_assumed(processes.link, LINK, missing)
    known = Machine(
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
    )
    found = _tried(known, missing, tell)
    among = ", ".join(f"{seconds * 1e6:.0f} µs of {number}" for number, seconds in found.calls.items())
    told = {
        **{
            f"{name}, {count} thread{'s' if count > 1 else ''}": word
            for count in threads
            for name, word in by_threads[count][1].items()
        },
        **{
            f"calls of {kind}": ", ".join(f"{took * 1e6:.0f} µs of {count}" for count, took in taken.items())
            for kind, taken in found.calls_of.items()
        },
        "calls between workers": f"{link.call * 1e6:.0f} µs" + (f"; in trial runs {among}" if among else ""),
        "messages": f"{link.latency * 1e6:.0f} µs, {link.bandwidth / 1e6:.0f} MB/s",
        "start": f"{alone.seconds:.1f} s, {shown(alone.bytes)}",
        **({"assumed, not measured": "; ".join(dict.fromkeys(missing))} if missing else {}),
    }
    return replace(found, measured=told)


def _kernels(count: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the rates of kernels with so many threads, and what was found in words."""
    with _threads(count):
        return kernels.rates()


def _tried(known: Machine, missing: list[str], tell: Callable[[str], None]) -> Machine:
    """Return the machine with rates and calls that explain trial runs, in processes as those of a run."""
    seen: dict[int, list[Observation]] = {1: [], known.cores: []}
    together: dict[int, list[TrialRun]] = {}
    with tempfile.TemporaryDirectory(prefix="weft-measure-") as scratch:
        for workers in (1, *TOGETHER):
            tell(f"trial runs of {workers} worker{'s' if workers > 1 else ''}")
            folder = Path(scratch) / str(workers)
            rehearsed = trials.rehearsals(workers, folder)
            for threads in sorted(seen) if workers == 1 else [max(1, known.cores // workers)]:
                run = partial(run_trials, rehearsed, folder / f"threads{threads}", threads=threads)
                together[workers] = _or_assumed(run, NoRuns(), missing)
                if threads in seen and workers <= known.cores:
                    seen[threads] += [seen for each in together[workers] for seen in each.observations()]
    found = replace(
        known,
        rates=_explaining(known.rates, seen[1]),
        shared_rates=_explaining(known.shared_rates, seen[known.cores]),
    )
    return _with_calls(found, {count: together[count] for count in TOGETHER if together[count]})


def _with_calls(found: Machine, together: Mapping[int, Sequence[TrialRun]]) -> Machine:
    """Return the machine with what calls take: those of most runs, and of each kind that was tried."""
    plain = {count: [each for each in runs if not each.kind] for count, runs in together.items()}
    tried = {str(count): call_seconds(found, runs) for count, runs in plain.items()}
    calls, lags = ({count: pair[place] for count, pair in tried.items()} for place in (0, 1))
    found = replace(found, calls=calls, lags=lags)
    kinds: dict[str, dict[str, float]] = {}
    for count, runs in together.items():
        for each in runs:
            if each.kind:
                kinds.setdefault(each.kind, {})[str(count)] = call_of_kind(found, each)
    return replace(found, calls_of=kinds)


def _explaining(known: Mapping[str, float], seen: Sequence[Observation]) -> dict[str, float]:
    """Return rates that explain what was seen; those that no trial counts stay."""
    counted = {name: known[name] for name in CountedWork().to_dict()}
    return {**known, **fitted(counted, seen)}


class NoRuns(list[TrialRun]):
    """What takes the place of trial runs where none could be made."""

    def __str__(self) -> str:
        return "rates of single kernels"


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
