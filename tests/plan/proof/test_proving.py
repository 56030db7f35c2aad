"""A run is planned, made by the command, and compared."""

from pathlib import Path

import pytest
from plan_machine import machine

from weft.errors import WorkerLost
from weft.plan.proof.proving import ProofCase, make_run, prove

SMALL = {"data": {"name": "community", "nodes": 200, "features": 8}, "model": {"name": "gcn", "hidden": 8}}


def test_one_process_sends_what_was_planned_and_takes_about_as_much(tmp_path: Path) -> None:
    proved = prove(ProofCase("small", SMALL, 1, epochs=3), machine(), tmp_path)
    assert proved.differences == {}
    assert (proved.bytes_off, proved.messages_off) == (0, 0)
    assert len(proved.run.sent[0]) == 3
    assert -0.6 < proved.memory_error < 0.6
    assert proved.run.epoch_seconds > 0


@pytest.mark.slow
def test_two_workers_send_what_was_planned(tmp_path: Path) -> None:
    recipe = {**SMALL, "strategy": {"name": "halo", "partitioner": "hash", "exchange": "quantised"}}
    proved = prove(ProofCase("small", recipe, 2, epochs=3), machine(), tmp_path)
    assert proved.differences == {}
    assert sum(proved.forecast.bytes_of_epochs) > 0
    assert proved.epochs >= 2


@pytest.mark.slow
def test_a_run_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(WorkerLost, match="small: the run failed"):
        make_run(ProofCase("small", {"data": {"path": str(tmp_path / "nothing.npz")}}, 1), tmp_path)
