"""A finished run teaches the machine: its phases beside their forecast, and rates that explain them."""

from dataclasses import replace
from pathlib import Path

import pytest
from plan_machine import machine

import weft.machine
from weft.cli.main import main
from weft.errors import InputError
from weft.plan.learning import learn, taught
from weft.plan.machine import keep_machine, read_machine
from weft.plan.measure.fit import Observation
from weft.plan.rehearse.work import CountedWork

SMALL = [f"--set=data.{each}" for each in ("name=community", "nodes=200", "features=8", "degree=6")]
WORK = CountedWork(calls=100, products=10**6)


def test_many_runs_move_the_rates_to_what_they_took() -> None:
    known = machine()
    wanted = 10 * known.seconds(WORK, 4)
    gaps = []
    for _ in range(40):
        gaps.append(abs(known.seconds(WORK, 4) - wanted))
        found = taught(known, [Observation(WORK, wanted)], 4)
        assert found is not None
        known = found
    assert gaps[1] < gaps[0]
    assert gaps[-1] < 0.1 * gaps[0]
    assert known.shared_rates == machine().shared_rates  # a thread each: nothing is said of several


def test_one_process_teaches_the_rates_of_all_threads_and_others_nothing() -> None:
    found = taught(machine(), [Observation(WORK, 1.0)], 1)
    assert found is not None
    assert found.rates == machine().rates
    assert found.shared_rates["calls"] > machine().shared_rates["calls"]
    assert found.shared_rates["drawn"] == machine().shared_rates["drawn"]
    assert taught(machine(), [Observation(WORK, 1.0)], 2) is None  # two threads of four: between both
    assert taught(machine(), [Observation(WORK, 1.0)], 8) is None  # on four cores: some of it is waiting


def test_a_run_is_laid_beside_its_forecast_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_machine(replace(machine(), cores=weft.machine.usable_cores(), threads=weft.machine.usable_cores()))
    run = str(tmp_path / "run")
    assert main(["train", *SMALL, "--set=train.epochs=4", "--out", run]) == 0
    before = read_machine()
    capsys.readouterr()
    assert main(["plan", "--learn", run]) == 0
    told = capsys.readouterr().out
    assert "forward" in told
    assert "backward" in told
    assert "bytes an epoch" in told
    after = read_machine()
    assert before is not None
    assert after is not None
    assert (after.rates, after.shared_rates) != (before.rates, before.shared_rates)


def test_a_run_that_did_not_end_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status": "running", "recipe": {}}')
    with pytest.raises(InputError, match="has ended"):
        learn(tmp_path, machine())
