"""The model of a machine: seconds from counts, prices from the user alone, kept in the user's cache."""

from dataclasses import replace
from pathlib import Path

import pytest
from plan_machine import machine

import weft.machine
from weft.errors import FormatError
from weft.plan.machine import cache_folder, keep_machine, read_machine
from weft.plan.rehearse.work import CountedWork


def test_seconds_are_rates_times_counts() -> None:
    assert machine().seconds(CountedWork(calls=100, edges=1000)) == pytest.approx(1e-3 + 1e-6)
    assert machine().travel(10**9, 10) == pytest.approx(1.001)


def test_workers_that_share_cores_are_slower() -> None:
    assert machine().crowding(4) == 1.0
    assert machine().crowding(8) == 2.0
    assert replace(machine(), workers_each=4).crowding(8) == 1.0


def test_dollars_are_known_only_where_the_user_gave_a_price() -> None:
    assert machine().dollars(3600, 2) is None
    assert replace(machine(), price=0.5, workers_each=1).dollars(3600, 2) == pytest.approx(1.0)


def test_a_machine_is_kept_and_read_and_another_one_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert read_machine() is None
    here = replace(machine(), cores=weft.machine.usable_cores())
    assert keep_machine(here).parent == cache_folder() == tmp_path / "weft"
    assert read_machine() == here
    keep_machine(replace(here, cores=here.cores + 1))
    assert read_machine() is None
    (tmp_path / "weft" / "machine.json").write_text("{")
    with pytest.raises(FormatError, match="weft plan --measure"):
        read_machine()
