"""What a call among workers takes them: found by the trial runs, whose epochs must come out.

A call wakes threads of each process in turn. Where workers have all cores, each of these waits until one
is free, which no probe without work in it sees.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from weft.plan.lanes import played
from weft.plan.machine import Machine
from weft.plan.measure.trials import TrialRun
from weft.plan.travel import Travel
from weft.plan.wires import wires_of

LEAST, MOST = 1e-6, 0.1
_TURNS = 24
_LAGS = 12


def call_seconds(machine: Machine, runs: Sequence[TrialRun]) -> tuple[float, float]:
    """Return the seconds of a call, and those by which ranks begin an epoch after each other.

    Runs of few calls and of many tell them apart: of each lag that is tried, the call with which half of the
    runs come out too long and half too short; the pair that errs least.
    """
    longest = min(each.run.epoch_seconds for each in runs)
    lags = [longest * number / _LAGS for number in range(_LAGS)]
    pairs = [(_call(machine, runs, lag), lag) for lag in lags]

    def error(pair: tuple[float, float]) -> float:
        call, lag = pair
        return sum(_log_error(machine, call, lag, each) ** 2 for each in runs)

    return min(pairs, key=error)


def call_of_kind(machine: Machine, trial: TrialRun) -> float:
    """Return the seconds of a call of another kind: those with which its trial comes out."""
    return _call(machine, [trial], machine.lag_among(len(trial.ranks)))


def _call(machine: Machine, runs: Sequence[TrialRun], lag: float) -> float:
    low, high = LEAST, MOST
    for _ in range(_TURNS):
        middle = math.sqrt(low * high)
        short = statistics.median(_log_error(machine, middle, lag, each) for each in runs) < 0
        low, high = (middle, high) if short else (low, middle)
    return math.sqrt(low * high)


def _log_error(machine: Machine, call: float, lag: float, trial: TrialRun) -> float:
    workers = len(trial.ranks)
    tried = replace(machine, calls={**machine.calls, str(workers): call})
    links = Travel(wires_of(None, tried, workers))
    courses = [rank.courses[-1] for rank in trial.ranks]
    seconds = played(courses, tried, links, trial.preparing)
    return math.log((lag + max(each.training for each in seconds)) / trial.run.epoch_seconds)
