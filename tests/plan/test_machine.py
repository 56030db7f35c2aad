"""The model of a machine: seconds from counts, prices from the user alone, kept in the user's cache."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from plan_machine import machine

import weft.machine
from weft.errors import FormatError
from weft.plan.machine import cache_folder, keep_machine, read_machine
from weft.plan.rehearse.work import CountedWork
from weft.train.saved.prices import Prices


def test_seconds_are_rates_times_counts() -> None:
    assert machine().seconds(CountedWork(calls=100, edges=1000), 4) == pytest.approx(1e-3 + 1e-6)


def test_a_worker_has_the_rate_of_the_threads_that_a_run_gives_it() -> None:
    work = CountedWork(calls=100)
    alone, two, four = (machine().seconds(work, workers) for workers in (1, 2, 4))
    assert (alone, four) == (pytest.approx(5e-4), pytest.approx(1e-3))
    assert two == pytest.approx(1e-3 * (1 / 3 + 2 / 3 / 2))  # Amdahl: a third of it is not divided
    assert replace(machine(), cores=64).seconds(work) == alone  # no more than was measured
    assert machine().seconds(work, 1, threads=1) == four  # whatever the run gives it


def test_workers_of_one_machine_share_its_memory() -> None:
    assert [machine().room(workers) for workers in (1, 4)] == [8 << 30, 2 << 30]
    assert replace(machine(), workers_each=2).room(4) == 4 << 30


def test_workers_that_share_cores_take_turns() -> None:
    assert machine().taking_turns([1.0, 3.0, 1.0, 1.0]) == [1.0, 3.0, 1.0, 1.0]
    uneven = [9.0, *[1.0] * 7]  # 16 seconds on 4 cores: the others are done before the first is
    assert machine().taking_turns(uneven) == [9.0, *[4.0] * 7]
    assert machine().taking_turns([2.0] * 8) == [4.0] * 8
    assert replace(machine(), workers_each=4).taking_turns([2.0] * 8) == [2.0] * 8
    of_two = replace(machine(), cores=1, workers_each=2)
    assert of_two.taking_turns([1.0, 1.0, 5.0, 5.0]) == [2.0, 2.0, 10.0, 10.0], "each machine for itself"


def test_dollars_are_known_only_where_the_user_gave_a_price() -> None:
    assert machine().dollars(3600, 2) is None
    prices = Prices("large", workers=1, hour=0.5, date="2026-11-01", sha256="")
    assert replace(machine(), prices=prices).dollars(3600, 2) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", ".."),
        ("start_seconds", None),
        ("prices", {"a": 1}),
        ("workers_each", 0),
        ("workers_each", "2"),
        ("bandwidth", 0),
        ("latency", float("nan")),
        ("call", -1.0),
    ],
)
def test_odd_values_of_a_kept_machine_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = keep_machine(replace(machine(), cores=weft.machine.usable_cores()))
    assert read_machine() is not None
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(FormatError, match=rf"{name} must be .*; measure again with weft plan --measure$"):
        read_machine()


def test_a_machine_is_kept_and_read_and_another_one_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert read_machine() is None
    here = replace(machine(), cores=weft.machine.usable_cores())
    assert keep_machine(here).parent == cache_folder() == tmp_path / "weft"
    kept = read_machine()
    assert kept is not None
    assert replace(kept, memory=here.memory) == here
    assert 0 < kept.memory != here.memory  # what is free now
    keep_machine(replace(here, cores=here.cores + 1))
    assert read_machine() is None
    told = {**asdict(here), "rates": {"calls": "fast"}}
    for damaged in ("{", "[]", '{"cores": "two"}', json.dumps(told)):
        (tmp_path / "weft" / "machine.json").write_text(damaged)
        with pytest.raises(FormatError, match="weft plan --measure"):
            read_machine()


def test_kinds_of_calls_have_rates_of_their_own() -> None:
    tried = replace(
        machine(),
        calls={"2": 1e-3, "4": 3e-3},
        calls_of={"sampled": {"2": 2e-3}, "halo, quantised": {"4": 5e-3}},
    )
    assert tried.call_among(4, ("halo, quantised", "halo")) == 5e-3
    assert tried.call_among(4, ("halo, exact", "halo")) == 3e-3
    assert tried.call_among(2, ("saint, None", "saint", "sampled")) == 2e-3
