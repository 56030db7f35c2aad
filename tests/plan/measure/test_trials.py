"""Trial runs: in processes of their own, beside what was counted of them before."""

from pathlib import Path

import pytest

from weft.plan.measure import trials
from weft.plan.measure.trials import TrialRun, rehearsals, run_trials
from weft.plan.proof.measured import MeasuredRun
from weft.plan.rehearse.rehearsal import RankRehearsal
from weft.plan.rehearse.work import CountedWork


@pytest.mark.parametrize("workers", [1, 2])
def test_trials_are_run_in_processes_and_timed_beside_their_work(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"data": {"nodes": 60, "features": 16}, "model": {"name": "gcn"}}
    monkeypatch.setattr(trials, "_of", lambda workers: (one,))
    monkeypatch.setattr(trials, "_EPOCHS", 3)
    (found,) = run_trials(rehearsals(workers, tmp_path), tmp_path / "run", threads=1)
    assert [len(held) for held in found.run.seconds] == [3] * workers
    assert found.run.epoch_seconds > 0
    seen = list(found.observations())
    assert all(each.seconds > 0 and each.work.calls > 0 for each in seen)
    assert sum(each.work.sent for each in seen) == (0 if workers == 1 else 2 * 3)  # two of rows, one of sums


def test_what_is_done_between_phases_is_no_part_of_what_is_timed() -> None:
    work = {"forward": CountedWork(calls=2), "other": CountedWork(calls=50), "evaluate": CountedWork(calls=9)}
    epochs = [{"forward": 1.0, "evaluate": 3.0}] * 3
    run = MeasuredRun([], [epochs, epochs], [[0.25] * 3] * 2, [])
    alone = TrialRun([RankRehearsal(work=[work])], MeasuredRun([], [epochs], [[0.0] * 3], []))
    together = TrialRun([RankRehearsal(work=[work])] * 2, run)
    assert sorted((each.work.calls, each.seconds) for each in alone.observations()) == [(2, 1.0), (9, 3.0)]
    assert [(each.work.calls, each.seconds) for each in together.observations()] == [(2, 0.75)] * 2
