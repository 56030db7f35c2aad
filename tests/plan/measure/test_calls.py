"""What a call among workers takes, from runs whose seconds are those of a machine that is known."""

from dataclasses import replace

import pytest
from plan_machine import machine

from weft.plan.machine import Machine
from weft.plan.measure.calls import call_seconds
from weft.plan.measure.trials import TrialRun
from weft.plan.proof.measured import MeasuredRun
from weft.plan.rehearse.course import BegunCall, Stretch
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork


def trial(calls: int, seconds: float) -> TrialRun:
    """Return a run of two ranks that make so many calls of 8 bytes after 100 operators each."""
    ranks = []
    for rank in range(2):
        course: list[Stretch] = []
        for number in range(calls):
            call = BegunCall((number,), (0, 1), {1 - rank: (8.0, 1.0)})
            course.append(Stretch(CountedWork(calls=100), begins=call, phase="forward"))
            course.append(Stretch(CountedWork(), awaits=call.name, kind="halo", phase="forward"))
        ranks.append(RankRehearsal(courses=[course]))
    epochs = [{"forward": seconds}, {"forward": seconds}]
    return TrialRun(ranks, MeasuredRun([], [epochs, epochs], [[0.0, 0.0]] * 2, []))


def taken(here: Machine, calls: int, call: float, lag: float) -> float:
    """Return what the run takes: operators of two threads of four, the call, a message of 0.1 ms."""
    return lag + calls * (here.seconds(CountedWork(calls=100), 2) + call + 1e-4)


def test_the_seconds_of_a_call_are_those_with_which_trial_runs_come_out() -> None:
    here = machine()
    runs = [trial(calls, taken(here, calls, 3e-3, 0.0)) for calls in (2, 4, 8)]
    call, lag = call_seconds(here, runs)
    assert (call, lag) == (pytest.approx(3e-3, rel=1e-3), 0.0)


def test_runs_of_few_calls_and_of_many_tell_the_start_of_an_epoch_apart() -> None:
    here = machine()
    runs = [trial(calls, taken(here, calls, 1e-3, 2e-3)) for calls in (2, 4, 8)]
    call, lag = call_seconds(here, runs)
    assert call == pytest.approx(1e-3, rel=0.15)
    assert lag == pytest.approx(2e-3, rel=0.15)


def test_a_call_among_a_number_of_workers_that_was_not_tried_lies_between_or_beyond() -> None:
    tried = replace(machine(), calls={"2": 1e-3, "4": 3e-3}, lags={"2": 0.0, "4": 1e-3})
    assert [tried.call_among(workers) for workers in (2, 3, 4, 8)] == pytest.approx([1e-3, 2e-3, 3e-3, 6e-3])
    assert [tried.lag_among(workers) for workers in (1, 3, 8)] == pytest.approx([0.0, 5e-4, 2e-3])
    plain = replace(machine(), call=1e-3)
    assert [plain.call_among(workers) for workers in (2, 4, 8)] == pytest.approx([1e-3, 1e-3, 2e-3])
    assert plain.lag_among(4) == 0.0
