"""A run planned, made by the command itself, and laid beside its plan."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from weft.config import Recipe, make_recipe
from weft.errors import WorkerLost
from weft.plan.forecast import Forecast
from weft.plan.machine import Machine
from weft.plan.planning import Plan, plan_one
from weft.plan.proof.measured import Counts, MeasuredRun, counts_of, differing, read_measured
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.wires import Wires, wires_apart

LIMIT = 600.0
"""Seconds that a run may take."""


@dataclass(frozen=True)
class ProofCase:
    """A recipe and a number of workers."""

    name: str
    recipe: Mapping[str, Mapping[str, Any]]
    workers: int
    epochs: int = 8
    rate: int | None = None
    """Mbit/s of a link that each worker has to the others; None: they meet in the memory of this machine."""

    def made(self) -> Recipe:
        """Return the recipe, on the CPU and with so many epochs."""
        train = {"device": "cpu", **self.recipe.get("train", {}), "epochs": self.epochs}
        return make_recipe({**self.recipe, "train": train}, overrides=[])


@dataclass(frozen=True)
class Proved:
    """A plan beside the run that it was of."""

    case: ProofCase
    forecast: Forecast
    run: MeasuredRun
    epochs: int
    """That were compared byte by byte."""
    differences: dict[str, tuple[int, int]]
    """Bytes and messages, over all ranks and epochs, by what they were for."""

    @property
    def bytes_off(self) -> int:
        """By how many bytes the plan is wrong."""
        return sum(size for size, _ in self.differences.values())

    @property
    def messages_off(self) -> int:
        """By how many messages."""
        return sum(number for _, number in self.differences.values())

    @property
    def memory_error(self) -> float:
        """The planned peak against the measured one, less 1."""
        return self.forecast.peak_memory_bytes / self.run.peak - 1

    @property
    def seconds_error(self) -> float:
        """The planned seconds of an epoch against the measured ones, less 1."""
        return self.forecast.epoch_seconds / self.run.epoch_seconds - 1


Starter = Callable[[Sequence[str], int], None]
"""Runs a command as so many ranks, and raises where one fails."""


def prove(case: ProofCase, machine: Machine, folder: Path, start: Starter | None = None) -> Proved:
    """Plan a run, make it in processes of its own in an empty folder, and compare.

    `start` starts the ranks where weft does not do so itself: one on each of the case's links.
    """
    wires = None if case.rate is None else partial(_links, machine, case)
    forecast, ranks = plan_one(case.made(), case.workers, machine, folder / "plan", wires=wires)
    make_run(case, folder / "run", start)
    run, planned = read_measured(folder / "run"), sent(ranks)
    differences: dict[str, tuple[int, int]] = {}
    for rank, (ours, theirs) in enumerate(zip(planned, run.sent, strict=True)):
        for name, off in differing(ours, theirs).items():
            differences[f"rank {rank}: {name}"] = off
    return Proved(case, forecast, run, min(len(planned[0]), len(run.sent[0])), differences)


def slower_than_best(proved: Sequence[Proved], machine: Machine) -> float | None:
    """Return how much slower what a plan of these runs recommends ran than the fastest exact one.

    None where there is no choice: fewer than two of them are exact, or none that is fits.
    """
    exact = [each for each in proved if each.forecast.exact]
    chosen = Plan({}, [each.forecast for each in proved], [], machine).recommended
    run = next((each.run for each in exact if each.forecast is chosen), None)
    if run is None or len(exact) < 2:
        return None
    return run.epoch_seconds / min(each.run.epoch_seconds for each in exact) - 1


def _links(machine: Machine, case: ProofCase, kinds: Sequence[str]) -> Wires:
    return wires_apart(machine, case.workers, (case.rate or 0) * 1e6 / 8, kinds=kinds)


def sent(ranks: list[RankRehearsal]) -> list[list[Counts]]:
    """Return what each rank of a plan sends in each epoch."""
    return [[counts_of(event) for event in rank.epochs] for rank in ranks]


def make_run(case: ProofCase, folder: Path, start: Starter | None = None) -> None:
    """Run the command as a user would; raise with its last line where it fails."""
    command = [sys.executable, "-W", "ignore", "-m", "weft", "train", "--json", "--out", str(folder)]
    command += ["--workers", str(case.workers)] if case.workers > 1 and start is None else []
    recipe = case.made()
    for section in ("data", "task", "model", "strategy", "train"):
        command += [f"--set={setting}" for setting in _settings(section, getattr(recipe, section))]
    if start is not None:
        start(command, case.workers)
        return
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise WorkerLost(f"{case.name}: the run failed: {said[-1]}")


def _settings(name: str, value: Any) -> Iterator[str]:
    """Give the settings of the command line that say what a table holds.

    >>> list(_settings("strategy", {"exchange": {"name": "sampled", "p": 0.1}}))
    ['strategy.exchange.name="sampled"', 'strategy.exchange.p=0.1']
    """
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _settings(f"{name}.{key}", held)
    else:
        yield f"{name}={json.dumps(value)}"
