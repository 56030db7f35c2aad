from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest

from weft.errors import FormatError
from weft.report.read import Run, read_run

from . import samples


def run_of(tmp_path: Path, events: list[dict[str, object]], **meta: object) -> Run:
    return read_run(samples.write_run(tmp_path / "run", samples.meta(**meta), events))


def test_folder_without_run_json_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"run\.json does not exist") as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00\xff", "[" * 100_000])
def test_damaged_run_json_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FormatError, match=r"run\.json") as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_events_are_a_note(tmp_path: Path) -> None:
    run = read_run(samples.write_run(tmp_path, samples.meta(), None))
    assert run.epochs == []
    assert "no readable events.jsonl" in run.notes[0]


def test_line_cut_short_at_the_end_is_left_out_with_a_note(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path, samples.meta(), samples.events(3))
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"time": 1.0, "event": "epo')
    run = read_run(folder)
    assert [epoch.number for epoch in run.epochs] == [1, 2, 3]
    assert len(run.notes) == 1
    assert "cut off" in run.notes[0]


def test_damaged_lines_are_counted_and_stepped_over(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path, samples.meta(), [])
    lines = [
        json.dumps(samples.epoch_event(0)),
        "garbage",
        "[" * 100_000,
        json.dumps(samples.epoch_event(1)),
        "",
    ]
    lines.insert(3, "[" * 200 + "]" * 200)
    (folder / "events.jsonl").write_text("\n".join(lines))
    run = read_run(folder)
    assert len(run.epochs) == 2
    assert run.notes == ["3 lines of events.jsonl could not be read (the first: line 2)."]


def test_numbers_that_were_not_finite_come_back_as_nan(tmp_path: Path) -> None:
    event = {"event": "epoch", "epoch": 1, "loss": None, "val": {"accuracy": None}, "memory_bytes": "many"}
    (epoch,) = run_of(tmp_path, [event]).epochs
    assert math.isnan(epoch.loss or 0.0)
    assert math.isnan(epoch.scores["val"]["accuracy"])
    assert epoch.memory_bytes is None


def test_epoch_without_a_loss_has_none(tmp_path: Path) -> None:
    (epoch,) = run_of(tmp_path, [{"event": "epoch", "epoch": 1}]).epochs
    assert (epoch.loss, epoch.scores, epoch.seconds) == (None, {}, {})


def test_epoch_written_again_after_a_resume_counts_once(tmp_path: Path) -> None:
    first, again = {"event": "epoch", "epoch": 1, "loss": 2.0}, {"event": "epoch", "epoch": 1, "loss": 1.0}
    run = run_of(tmp_path, [first, {"event": "epoch", "epoch": 2, "loss": 1.5}, again])
    assert [(epoch.number, epoch.loss) for epoch in run.epochs] == [(1, 1.0), (2, 1.5)]


def scored(number: int, accuracy: float | None) -> dict[str, object]:
    return {
        "event": "epoch",
        "epoch": number,
        "loss": 1.0,
        "val": {"accuracy": accuracy},
        "test": {"accuracy": 0.1 * number},
    }


def test_best_epoch_is_the_one_the_summary_names_among_equals(tmp_path: Path) -> None:
    events = [scored(1, 0.5), scored(2, 0.8), scored(3, 0.8), scored(4, None)]
    best = run_of(tmp_path, events, summary={"best_epoch": 3}).best
    assert best is not None
    assert best.number == 3


def test_best_epoch_of_a_crashed_run_is_the_first_highest(tmp_path: Path) -> None:
    run = run_of(tmp_path, [scored(1, 0.5), scored(2, 0.8), scored(3, 0.8), scored(4, None)], summary=None)
    assert run.best is not None
    assert run.best.number == 2
    assert run.score("test") == pytest.approx(0.2)


def test_last_epoch_is_not_called_best_because_its_weights_were_kept(tmp_path: Path) -> None:
    best = run_of(tmp_path, [scored(1, 0.8), scored(2, 0.5)], summary={"best_epoch": 2}).best
    assert best is not None
    assert best.number == 1


def test_run_without_validation_has_no_best_epoch(tmp_path: Path) -> None:
    events = [{"event": "epoch", "epoch": i, "loss": 1.0, "train": {"accuracy": 0.9}} for i in (1, 2)]
    run = run_of(tmp_path, events, summary={"best_epoch": 2})
    assert run.best is None
    assert run.score("train") == 0.9
    assert run.score("test") is None


def test_judged_metric_is_that_of_the_run(tmp_path: Path) -> None:
    events = samples.events(2, metrics=("accuracy", "micro_f1"))
    assert run_of(tmp_path, events, summary={"metric": "micro_f1"}).metrics == ["micro_f1", "accuracy"]
    crashed = [*events, {"event": "start", "metric": "micro_f1"}]
    assert run_of(tmp_path, crashed, summary=None).metric == "micro_f1"


def test_score_of_the_returned_weights_comes_first(tmp_path: Path) -> None:
    summary = {"metric": "micro_f1", "metrics": {"test": {"micro_f1": 0.77}}, "test_accuracy": 0.5}
    run = run_of(tmp_path, samples.events(2, metrics=("micro_f1",)), summary=summary)
    assert run.score("test") == 0.77


def test_phases_come_in_the_order_they_run(tmp_path: Path) -> None:
    event = {
        "event": "epoch",
        "epoch": 1,
        "seconds": {"exchange": 4, "evaluate": 3, "backward": 2, "forward": 1},
    }
    run = run_of(tmp_path, [event], summary=None)
    assert run.phases == ["forward", "backward", "evaluate", "exchange"]
    assert run.epoch_seconds == 7  # evaluation is apart


def test_a_long_run_takes_a_small_part_of_its_files(tmp_path: Path) -> None:
    events = samples.traffic(40, workers=2)
    folder = samples.write_run(tmp_path, samples.meta(), events)
    size = (folder / "events.jsonl").stat().st_size
    read_run(folder)  # what is read once stays
    tracemalloc.start()
    try:
        held = read_run(folder)
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()
    assert held.traffic is not None
    assert len(held.traffic.records) == 80
