"""Seconds of a forecast: the slowest rank's work on the cores there are, and traffic that is not hidden."""

from dataclasses import replace
from typing import Any

import pytest
from plan_machine import machine

from weft.config import make_recipe
from weft.plan.candidates import Candidate, candidates
from weft.plan.forecast import Forecast, forecast
from weft.plan.machine import Machine
from weft.plan.rehearse.course import BegunCall, Stretch
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork
from weft.plan.wires import Wires, wires_of
from weft.train.saved.prices import Prices


def candidate(strategy: str) -> Candidate:
    recipe = make_recipe({"strategy": {"name": strategy, "exchange": "exact"}})
    (found,) = (each for each in candidates(recipe, [2], [strategy]) if isinstance(each, Candidate))
    return found


def rank(number: int, calls: int, sent: int, kind: str = "halo", beside: int = 0) -> RankRehearsal:
    """Return a rank that sends after some operators, has others `beside`, and waits for what it is sent."""
    volume = {"kind": kind, "slot": 0, "direction": "forward", "peer": 1 - number, "messages_sent": 1}
    volume |= {"bytes_sent": sent, "bytes_received": sent}
    event: dict[str, Any] = {"rank": number, "bytes_sent": sent, "messages": 1, "volumes": [volume]}
    call = BegunCall(("rows",), (0, 1), {1 - number: (sent, 1)} if sent else {})
    phase = "other" if kind == "control" else "forward"
    course = [
        Stretch(CountedWork(calls=calls), begins=call, phase="forward"),
        Stretch(CountedWork(calls=beside), awaits=call.name, kind=kind, phase=phase),
    ]
    work = {"forward": CountedWork(calls=calls + beside)}
    return RankRehearsal([event], [work], [course], held=5, peak=10 * (number + 1))


def told(
    strategy: str,
    ranks: list[RankRehearsal],
    here: Machine | None = None,
    links: Wires | None = None,
    **more: int,
) -> Forecast:
    here = here or machine()
    return forecast(candidate(strategy), ranks, here, links or wires_of(None, here, len(ranks)), **more)


def test_the_slowest_rank_and_the_largest_count() -> None:
    found = told("halo", [rank(0, 100, 0), rank(1, 300, 0)])
    assert found.epoch_seconds == pytest.approx(2e-3)  # 3 ms of one thread, with two
    assert found.peak_memory_bytes == machine().joined + 20
    assert found.memory_limit_bytes == 4 << 30  # a half of the machine
    assert found.fits
    assert not told("halo", [rank(0, 1, 0), rank(1, 1, 0)], memory=1 << 20).fits
    assert found.peak_memory_by_rank == [machine().joined + 10, machine().joined + 20]


def test_workers_that_share_cores_take_as_long_as_the_cores_do() -> None:
    narrow, even = replace(machine(), cores=1), [rank(0, 200, 0), rank(1, 200, 0)]
    assert told("halo", even, narrow).seconds_by_phase["forward"] == pytest.approx(4e-3)
    # The first is through after 2 ms, one of which the other had: it needs 2 more, and who waits has none.
    uneven = told("halo", [rank(0, 100, 0), rank(1, 300, 0)], narrow)
    assert uneven.epoch_seconds == pytest.approx(4e-3)
    apart = replace(narrow, workers_each=1)
    alone = Wires(2, 1, 1e9, 0.0, inside=1e9, inside_latency=0.0)
    assert told("halo", even, apart, alone).seconds_by_phase["forward"] == pytest.approx(2e-3)


def test_work_hides_traffic_between_machines_and_none_within_one() -> None:
    ranks = [rank(0, 100, 10**8, beside=300), rank(1, 100, 10**8, beside=300)]
    near = told("halo", ranks)  # 100 ms for both directions, each of which takes a core
    assert near.seconds_by_phase["exchange"] == pytest.approx(0.1001)
    wire = Wires(2, 1, 1e9, 1e-4, inside=1e9, inside_latency=0.0)
    hidden = told("halo", ranks, links=wire)
    assert hidden.seconds_by_phase["exchange"] == pytest.approx(0.1001 - 2e-3)  # 3 ms of one thread
    assert hidden.bytes_per_epoch == 2 * 10**8
    assert hidden.bytes_by_pair == [[0, 10**8], [10**8, 0]]


def test_what_workers_agree_on_between_epochs_is_not_of_them() -> None:
    ranks = [rank(0, 100, 10**8, "control"), rank(1, 100, 10**8, "control")]
    assert told("halo", ranks).seconds_by_phase["exchange"] == 0.0


def test_dollars_are_those_of_all_machines() -> None:
    prices = Prices("large", workers=1, hour=3.6, date="2026-11-01", sha256="")
    here = replace(machine(), prices=prices)
    found = told("halo", [rank(0, 100, 0), rank(1, 100, 0)], here)
    whole = found.epoch_seconds + found.evaluation_seconds
    assert found.dollars_per_epoch == pytest.approx(2 * 1e-3 * whole)
