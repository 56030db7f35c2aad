"""Runs among failures, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from weft.simulate.failures import RunPlan, coming_and_going, failure_times, played_run

PLAN = RunPlan(10, 10.0, checkpoint_every=3, checkpoint_seconds=2.0, restart_seconds=5.0, workers=4)


def test_without_failures_a_run_takes_its_epochs_and_its_checkpoints() -> None:
    told = played_run(PLAN)
    assert (told.seconds, told.training, told.checkpoints, told.lost) == (106.0, 100.0, 6.0, 0.0)


def test_a_failure_loses_the_work_since_the_checkpoint() -> None:
    # The checkpoint is there at 32; the epochs until 42 and 52 are lost with 4 seconds of the third.
    told = played_run(PLAN, failures=[56.0])
    assert told.lost == 24.0
    assert told.restarts == 5.0
    assert told.seconds == 106.0 + 24.0 + 5.0
    assert told.failures == 1


def test_a_failure_while_a_checkpoint_is_written_loses_that_too() -> None:
    told = played_run(PLAN, failures=[31.0])
    assert told.lost == 31.0
    assert told.seconds == 106.0 + 31.0 + 5.0


def test_a_failure_while_the_run_restarts_counts_when_it_is_back() -> None:
    told = played_run(PLAN, failures=[10.0, 12.0])
    assert (told.lost, told.restarts, told.failures) == (10.0, 10.0, 2)


def test_more_frequent_checkpoints_lose_less() -> None:
    times = failure_times(60, 1e5, seed=3)
    losses = [played_run(replace(PLAN, epochs=300, checkpoint_every=each), times).lost for each in (1, 10)]
    assert losses[0] < losses[1]


def test_all_seconds_are_accounted_for() -> None:
    told = played_run(replace(PLAN, epochs=50), failure_times(30, 1e4, seed=1), [(100.0, 2), (300.0, 4)])
    parts = told.training + told.lost + told.checkpoints + told.restarts + told.handing
    assert told.seconds == pytest.approx(parts)


def test_workers_that_leave_give_their_parts_to_the_others_until_they_come_back() -> None:
    plan = RunPlan(5, 10.0, workers=4, handing_seconds=1.0)
    # 3 workers for 4 parts take two turns: epochs end at 10, then 1 + 20, and after the return 1 + 10 each.
    told = played_run(plan, changes=[(5.0, 3), (15.0, 4)])
    assert told.seconds == 10 + 21 + 1 + 30
    assert told.changes == 2
    assert told.lost == 0


def test_a_run_that_fails_more_often_than_it_saves_never_ends() -> None:
    plan = RunPlan(2, 10.0, checkpoint_every=2)
    assert played_run(plan, np.arange(5.0, 1e5, 5.0).tolist()).seconds == np.inf


def test_failures_come_as_often_as_was_said() -> None:
    times = failure_times(6, 3600 * 500, seed=2)
    assert len(times) / 500 == pytest.approx(6, rel=0.05)
    assert times == failure_times(6, 3600 * 500, seed=2)
    assert failure_times(0, 1e9) == []


def test_workers_come_back() -> None:
    moves = coming_and_going(8, 4, 2.0, 100.0, 3600.0)
    assert min(count for _, count in moves) >= 4
    assert moves[-1][1] == 8
