"""A run is planned, made by the command, and compared."""

from dataclasses import replace
from pathlib import Path

import pytest
from plan_machine import machine

from weft.errors import WorkerLost
from weft.plan.forecast import Forecast
from weft.plan.proof import proving
from weft.plan.proof.measured import MeasuredRun
from weft.plan.proof.proving import ProofCase, Proved, make_run, prove, slower_than_best

SMALL = {"data": {"name": "community", "nodes": 200, "features": 8}, "model": {"name": "gcn", "hidden": 8}}

FORECAST = Forecast(**dict.fromkeys(Forecast.__dataclass_fields__, 0))  # type: ignore[arg-type]


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


def test_a_run_with_links_is_planned_over_them_and_started_by_who_made_them(
    tmp_path: Path,
) -> None:
    case = ProofCase("linked", {**SMALL, "strategy": {"name": "halo", "partitioner": "hash"}}, 2, rate=100)
    wires = proving._links(replace(machine(), calls={"2": 2e-3}), case, ("halo, exact", "halo"))
    assert (wires.each, wires.bandwidth, wires.call) == (1, 12.5e6, 2e-3)
    commands: list[tuple[list[str], int]] = []
    make_run(case, tmp_path, lambda command, workers: commands.append((list(command), workers)))
    ((command, workers),) = commands
    assert workers == 2
    assert "--workers" not in command  # each is started as a rank
    assert str(tmp_path) in command


def test_what_is_recommended_is_exact_and_beside_the_fastest_exact_run() -> None:
    def proved(planned: float, took: float, *, exact: bool = True, peak: int = 0) -> Proved:
        told = replace(
            FORECAST, epoch_seconds=planned, exact=exact, peak_memory_bytes=peak, memory_limit_bytes=1
        )
        run = MeasuredRun([], [[{"forward": took}] * 2], [[0.0] * 2], [])
        return Proved(ProofCase("one", SMALL, 1), told, run, 2, {})

    fast, slow = proved(1.0, 3.0), proved(2.0, 2.0)
    approximate, large = proved(0.1, 0.1, exact=False), proved(0.2, 4.0, peak=2)
    assert slower_than_best([fast, slow, approximate, large], machine()) == pytest.approx(0.5)
    assert slower_than_best([slow, proved(3.0, 2.5)], machine()) == 0.0
    assert slower_than_best([fast, approximate], machine()) is None, "no choice"
