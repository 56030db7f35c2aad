"""The run folder: what marks it as taken, and what run.json says."""

import json
from pathlib import Path

import pytest

from weft.errors import FormatError, InputError
from weft.train.saved.run_folder import RunFolder, end_run, holds_run, read_run, versions

RECIPE = {"data": {}, "model": {"name": "gcn"}, "strategy": {}, "train": {"epochs": 3}}


@pytest.mark.parametrize("mark", ["run.json", "events.jsonl", "checkpoint"])
def test_any_trace_of_a_run_marks_a_folder_as_taken(tmp_path: Path, mark: str) -> None:
    assert not holds_run(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert not holds_run(tmp_path)
    (tmp_path / mark / "epoch-000001").mkdir(parents=True)
    assert holds_run(tmp_path)
    with pytest.raises(InputError, match="already holds a run"):
        RunFolder(tmp_path, recipe=RECIPE)


def test_what_was_killed_before_it_was_a_run_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "events.jsonl").touch()
    assert not holds_run(tmp_path)
    with pytest.raises(InputError, match="holds no run to continue; leave out --resume"):
        RunFolder(tmp_path, recipe=RECIPE, resume=True)
    for name in (".run.json.ab12.partial", ".events.jsonl.cd34.partial", ".events-rank1.jsonl.e5.partial"):
        (tmp_path / name).touch()
    RunFolder(tmp_path, recipe=RECIPE).create()
    kept = {item.name for item in tmp_path.iterdir()}
    assert kept == {"checkpoint", "events.jsonl", ".events-rank1.jsonl.e5.partial"}, (
        "another worker's is its own"
    )


def test_run_json_is_read_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "b", recipe=RECIPE)
    assert not folder.path.exists()  # opening changes nothing
    folder.create()
    folder.write("running", summary={"loss": float("nan")})
    run = read_run(folder.path)
    assert run["status"] == "running"
    assert run["recipe"] == RECIPE
    assert run["summary"] == {"loss": None}
    assert set(versions()) <= set(run["versions"])


def test_a_discarded_run_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", recipe=RECIPE)
    folder.create()
    folder.write("failed")
    folder.continue_events()
    (folder.path / "trace.json").write_text("the run's")
    folder.discard()
    assert not folder.path.exists()

    (folder.path / "tensorboard").mkdir(parents=True)
    for name in ("trace.json", "tensorboard/events", "notes.txt"):
        (folder.path / name).write_text("mine")
    folder.create()
    folder.write("failed")
    folder.discard()
    folder.discard()  # as another worker would
    assert not holds_run(folder.path)
    assert sorted(item.name for item in folder.path.iterdir()) == ["notes.txt", "tensorboard", "trace.json"]

    folder.create()
    (folder.path / "checkpoint" / "epoch-1").write_text("worth keeping")
    folder.discard()
    assert holds_run(folder.path)


def test_a_run_that_could_not_end_itself_is_ended_and_one_that_did_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", recipe=RECIPE)
    folder.create()
    for status, after in (("running", "failed"), ("done", "done")):
        folder.write(status, summary={"loss": 1.0})
        end_run(folder.path, "failed")
        run = read_run(folder.path)
        assert (run["status"], run["recipe"], run["summary"]) == (after, RECIPE, {"loss": 1.0})


def test_a_folder_without_a_run_and_a_damaged_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(RECIPE)[:-5])
    with pytest.raises(FormatError, match=r"run\.json: damaged, not valid JSON"):
        read_run(tmp_path)


def test_a_run_whose_checkpoint_was_taken_away_is_not_begun_anew(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, recipe=RECIPE)
    folder.create()
    folder.write("running")
    assert RunFolder(tmp_path, recipe=RECIPE, resume=True).resumed is None  # killed before its first one
    folder.write("interrupted", error="interrupted")
    assert RunFolder(tmp_path, recipe=RECIPE, resume=True).resumed is None  # by a signal, before it was saved
    folder.write("done", summary={"epochs": 3})
    with pytest.raises(FormatError, match="holds a run that was saved, but no checkpoint"):
        RunFolder(tmp_path, recipe=RECIPE, resume=True)
