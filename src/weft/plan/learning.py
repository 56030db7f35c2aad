"""A machine that learns from its runs: forecasts beside what was measured, and rates that explain both.

Each run moves the rates a little (ridge regression over counted work, around what was known before, as ROC
learns the cost of a part): many runs move them to where they belong.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.config import make_recipe
from weft.errors import InputError
from weft.plan.forecast import Forecast
from weft.plan.machine import Machine
from weft.plan.measure.fit import Observation, fitted
from weft.plan.planning import plan_one
from weft.plan.proof.measured import EVALUATION, MeasuredRun, read_measured
from weft.plan.rehearse.course import BETWEEN
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork
from weft.train.saved.run_folder import read_run

RIDGE = 1.0
"""How much what is known weighs against one run."""


@dataclass(frozen=True)
class Lesson:
    """A run beside its forecast, and the machine as it is known after it."""

    forecast: Forecast
    run: MeasuredRun
    machine: Machine
    learned: bool
    """Whether rates could be learned: not where threads were neither one nor all, or workers shared cores."""

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Give the seconds of each phase of an epoch, forecast and measured; what waits is in its phase."""
        planned, measured = self.forecast.seconds_by_phase, self.run.phases
        planned = {**planned, EVALUATION: self.forecast.evaluation_seconds}
        for name in dict.fromkeys((*planned, *measured)):
            if planned.get(name) or measured.get(name):
                yield name, planned.get(name, 0.0), measured.get(name, 0.0)


def learn(folder: Path, machine: Machine) -> Lesson:
    """Return what a finished run teaches: it is rehearsed as its folder tells, and laid beside its events."""
    told = read_run(folder)
    if told.get("status") != "done":
        raise InputError(f"{folder}: expected a run that has ended, this one is {told.get('status')!r}")
    sections = {name: held for name, held in told["recipe"].items() if name != "graph"}
    if not sections.get("data"):
        raise InputError(f"{folder} was made in Python, on a graph that its recipe does not name")
    workers = int(told["recipe"].get("graph", {}).get("workers", 1))
    run = read_measured(folder)
    with tempfile.TemporaryDirectory(prefix="weft-plan-") as scratch:
        recipe = make_recipe(_given(sections), overrides=[])
        forecast, ranks = plan_one(recipe, workers, machine, Path(scratch))
    found = taught(machine, list(observations(ranks, run)), workers)
    return Lesson(forecast, run, found or machine, found is not None)


def observations(ranks: list[RankRehearsal], run: MeasuredRun) -> Iterator[Observation]:
    """Give the work of an epoch of training on each rank, and the seconds in which it did not wait."""
    for rank, seconds in zip(ranks, run.working):
        total = CountedWork()
        for name, work in rank.work[-1].items():
            if name not in (EVALUATION, BETWEEN):
                total.add(work)
        yield Observation(total, seconds)


def taught(machine: Machine, seen: list[Observation], workers: int) -> Machine | None:
    """Return the machine with rates that explain what was seen; None where it says nothing of them."""
    if machine.crowded(workers):
        return None
    threads = machine.cores // machine.on_one(workers)
    if threads == 1:
        return replace(machine, rates={**machine.rates, **_fitted(machine.rates, seen)})
    if threads == machine.threads:
        return replace(machine, shared_rates={**machine.shared_rates, **_fitted(machine.shared_rates, seen)})
    return None


def _fitted(known: Any, seen: list[Observation]) -> dict[str, float]:
    counted = CountedWork().to_dict()
    return fitted({name: known[name] for name in counted}, seen, ridge=RIDGE)


def _given(value: Any) -> Any:
    """Return the sections of a recipe without what was left to itself."""
    if not isinstance(value, dict):
        return value
    return {name: _given(held) for name, held in value.items() if held is not None}
