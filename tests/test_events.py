"""Events survive what a run can die of, and reach every sink."""

import json
from pathlib import Path

import pytest

from weft.errors import FormatError
from weft.events import ChromeTrace, Event, Events, TensorBoard, dumps, read_events


def test_events_are_on_disk_before_the_next_one_is_written(tmp_path: Path) -> None:
    events = Events(tmp_path / "events.jsonl")
    events.write("start", epochs=2)
    events.write("epoch", epoch=1, loss=0.5)
    held = read_events(tmp_path)  # not closed, as when the process is killed here
    assert [event["event"] for event in held] == ["start", "epoch"]
    assert held[0]["time"] <= held[1]["time"]
    events.close()


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "start"}\n{"event": "epo')
    assert read_events(path) == [{"event": "start"}]


def test_damage_in_the_middle_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "start"}\n{"ev\n{"event": "end"}\n')
    with pytest.raises(FormatError, match="line 2"):
        read_events(path)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot read events"):
        read_events(tmp_path / "none.jsonl")


def test_numbers_that_are_not_finite_become_null() -> None:
    told = dumps({"loss": float("nan"), "more": [float("inf"), 1.5], "deep": {"x": -float("inf")}})
    assert json.loads(told) == {"loss": None, "more": [None, 1.5], "deep": {"x": None}}


def test_phases_add_up_and_are_taken_once() -> None:
    seen: list[Event] = []
    events = Events(sinks=[seen.append])
    for _ in range(2):
        with events.phase("forward"):
            pass
    with events.phase("backward"):
        pass
    seconds = events.take_seconds()
    assert set(seconds) == {"forward", "backward"}
    assert events.take_seconds() == {}
    assert [event["name"] for event in seen] == ["forward", "forward", "backward"]


def test_a_continued_run_counts_its_time_on() -> None:
    assert Events(elapsed=100.0).write("resume")["time"] >= 100.0


def test_span_is_recorded_with_its_length(tmp_path: Path) -> None:
    events = Events(tmp_path / "events.jsonl")
    with events.span("load", path="x"):
        pass
    events.close()
    (event,) = read_events(tmp_path)
    assert event["name"] == "load"
    assert event["path"] == "x"
    assert event["seconds"] >= 0


def test_chrome_trace_is_json_when_closed_and_nearly_when_not(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = Events(sinks=[ChromeTrace(path)])
    with events.phase("forward"):
        pass
    assert json.loads(path.read_text().rstrip().rstrip(",") + "]")[0]["name"] == "forward"
    events.close()
    entries = json.loads(path.read_text())
    assert entries[0]["ph"] == "X"
    assert entries[0]["dur"] >= 0


def test_tensorboard_gets_every_number_of_an_epoch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = Events(sinks=[TensorBoard(tmp_path)])
    events.write("epoch", epoch=3, loss=0.5, val={"accuracy": 0.75}, seconds={"forward": 0.1})
    events.close()
    held = EventAccumulator(str(tmp_path))
    held.Reload()
    assert {"loss", "val/accuracy", "seconds/forward"} <= set(held.Tags()["scalars"])
    assert held.Scalars("val/accuracy")[0].value == 0.75
    assert held.Scalars("val/accuracy")[0].step == 3


def traced(path: Path) -> list[str]:
    return [entry["name"] for entry in json.loads(path.read_text()) if entry["ph"] == "X"]


def test_chrome_trace_of_a_continued_run_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for name in ("forward", "backward"):
        events = Events(sinks=[ChromeTrace(path)])
        with events.phase(name):
            pass
        events.close()
    assert traced(path) == ["forward", "backward"]


@pytest.mark.parametrize("lost", [1, 30])
def test_chrome_trace_is_continued_after_a_killed_run(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "trace.json"
    killed = Events(sinks=[ChromeTrace(path)])
    for name in ("forward", "backward"):
        with killed.phase(name):
            pass
    path.write_text(path.read_text()[:-lost])
    events = Events(sinks=[ChromeTrace(path)])
    with events.phase("optimizer"):
        pass
    events.close()
    assert traced(path) == ["forward", "optimizer"]


def test_a_trace_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot write .*trace\.json: No such file"):
        ChromeTrace(tmp_path / "none" / "trace.json")
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    full = tmp_path / "trace.json"
    trace = ChromeTrace(full)
    trace.file.close()
    trace.file = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
    with pytest.raises(FormatError, match=r"cannot write /dev/full: No space left"):
        trace({"event": "phase", "name": "forward", "start": 0.0, "seconds": 0.1})
    trace.close()
    full.unlink()
    full.symlink_to("/dev/full")
    with pytest.raises(FormatError, match=r"cannot write .*trace\.json: No space left"):
        ChromeTrace(full)
