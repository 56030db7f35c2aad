"""Seconds of a forecast: the slowest rank's work, and of its traffic what work does not hide."""

from dataclasses import replace
from typing import Any

import pytest
from plan_machine import machine

from weft.config import make_recipe
from weft.plan.candidates import Candidate, candidates
from weft.plan.forecast import forecast
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork
from weft.train.saved.prices import Prices


def candidate(strategy: str) -> Candidate:
    recipe = make_recipe({"strategy": {"name": strategy, "exchange": "exact"}})
    (found,) = (each for each in candidates(recipe, [2], [strategy]) if isinstance(each, Candidate))
    return found


def rank(number: int, calls: int, sent: int) -> RankRehearsal:
    volume = {"kind": "halo", "slot": 0, "direction": "forward", "peer": 1 - number, "messages_sent": 1}
    volume |= {"bytes_sent": sent, "bytes_received": sent}
    event: dict[str, Any] = {"rank": number, "bytes_sent": sent, "messages": 1, "volumes": [volume]}
    return RankRehearsal([event], [{"forward": CountedWork(calls=calls)}], held=5, peak=10 * (number + 1))


def test_the_slowest_rank_and_the_largest_count() -> None:
    told = forecast(candidate("halo"), [rank(0, 100, 0), rank(1, 300, 0)], machine())
    assert told.seconds_by_phase["forward"] == pytest.approx(2e-3)  # 3 ms of one thread, with two
    assert told.peak_memory_bytes == machine().joined + 20
    assert told.memory_limit_bytes == 4 << 30  # a half of the machine
    assert told.fits
    assert not forecast(candidate("halo"), [rank(0, 1, 0), rank(1, 1, 0)], machine(), memory=1 << 20).fits
    assert told.peak_memory_by_rank == [machine().joined + 10, machine().joined + 20]


def test_traffic_that_overlaps_is_hidden_behind_work_and_other_is_not() -> None:
    ranks = [rank(0, 100, 10**8), rank(1, 100, 10**8)]  # 2/3 ms of work by two threads, 100.1 ms of travel
    hidden, open_ = (forecast(candidate(name), ranks, machine()) for name in ("halo", "vertex_cut"))
    assert hidden.seconds_by_phase["exchange"] == pytest.approx(0.1001 - 2e-3 / 3)
    assert open_.seconds_by_phase["exchange"] == pytest.approx(0.1001)
    assert hidden.bytes_per_epoch == 2 * 10**8
    assert hidden.bytes_by_pair == [[0, 10**8], [10**8, 0]]


def test_dollars_are_those_of_all_machines() -> None:
    prices = Prices("large", workers=1, hour=3.6, date="2026-11-01", sha256="")
    here = replace(machine(), prices=prices)
    told = forecast(candidate("halo"), [rank(0, 100, 0), rank(1, 100, 0)], here)
    assert told.dollars_per_epoch == pytest.approx(2 * 1e-3 * (told.epoch_seconds + told.evaluation_seconds))
