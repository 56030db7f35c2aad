"""`weft selftest plan` shows runs beside their plans and fails where a byte was not foreseen."""

from pathlib import Path
from typing import Any

import pytest
from plan_machine import machine

from weft.cli import main, plan_proof, planning
from weft.plan.planning import plan_one
from weft.plan.proof import proving
from weft.plan.proof.measured import MeasuredRun
from weft.plan.proof.proving import ProofCase, Proved

SMALL = {"data": {"name": "community", "nodes": 200, "features": 8}}


def beside(case: ProofCase, differences: dict[str, tuple[int, int]], folder: Path) -> Proved:
    forecast, _ = plan_one(case.made(), case.workers, machine(), folder)
    run = MeasuredRun([[{}, {}]], [[{"forward": 0.5}] * 2], [[0.0] * 2], [forecast.peak_memory_bytes // 2])
    return Proved(case, forecast, run, 2, differences)


@pytest.mark.parametrize(("off", "code"), [({}, 0), ({"rank 0: halo": (12, 1)}, 1)])
def test_a_byte_that_was_not_foreseen_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], off: Any, code: int
) -> None:
    monkeypatch.setattr(planning, "machine_here", machine)
    monkeypatch.setattr(plan_proof, "cases", lambda: [ProofCase("small", SMALL, 1)])
    monkeypatch.setattr(proving, "prove", lambda case, machine, folder: beside(case, off, folder))
    assert main.main(["selftest", "plan"]) == code
    told = capsys.readouterr().out
    assert "+100.0%" in told  # twice the memory that was taken
    assert ("12 bytes and 1 messages off" in told) == bool(off)
    assert ("every byte and message was foreseen" in told) == (not off)


def test_runs_of_the_selftest_exchange_rows_sums_and_batches() -> None:
    cases = list(plan_proof.cases())
    assert {case.workers for case in cases} == {1, 2}
    assert {case.made().strategy["name"] for case in cases} == {"single", "halo", "vertex_cut", "sampled"}
