"""A folder takes its place in one step, and what killed writers left is put right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft import placing
from weft.cli.main import main
from weft.errors import FormatError
from weft.placing import PARTIAL, move_into_place, tidy_after_killed_writers, work_folder, writer_tag


def folder(path: Path, word: str) -> Path:
    path.mkdir()
    (path / "word").write_text(word)
    return path


def gone() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_the_new_folder_replaces_the_old_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = folder(tmp_path / "g", "old")
    move_into_place(folder(tmp_path / f".g.x{PARTIAL}", "new"), target)
    assert (target / "word").read_text() == "new"
    assert os.listdir(tmp_path) == ["g"]


def test_a_folder_comes_to_a_free_place(tmp_path: Path) -> None:
    move_into_place(folder(tmp_path / f".g.x{PARTIAL}", "new"), tmp_path / "g")
    assert os.listdir(tmp_path) == ["g"]


def test_the_old_folder_stays_where_the_new_one_cannot_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, partial = folder(tmp_path / "g", "old"), folder(tmp_path / f".g.x{PARTIAL}", "new")
    rename = os.rename

    def fail(source: Path, to: Path) -> None:
        if Path(source) == partial:
            raise OSError("no")
        rename(source, to)

    monkeypatch.setattr(placing.os, "rename", fail)
    with pytest.raises(OSError, match="no"):
        move_into_place(partial, target)
    assert (target / "word").read_text() == "old"


def test_what_a_killed_writer_left_goes_and_that_of_one_at_work_stays(tmp_path: Path) -> None:
    host = writer_tag().rpartition("-")[0]
    mine = folder(tmp_path / f".g.{writer_tag()}{PARTIAL}", "mine")
    far = folder(tmp_path / f".g.elsewhere-{gone()}{PARTIAL}", "of another machine")
    dead = folder(tmp_path / f".g.{host}-{gone()}{PARTIAL}", "left")
    tidy_after_killed_writers(tmp_path / "g")
    assert (mine.exists(), far.exists(), dead.exists()) == (True, True, False)
    assert not (tmp_path / "g").exists(), "what was half written is not put in place"
    folder(tmp_path / "g", "new")
    old = folder(tmp_path / f".g.{host}-{gone()}.old{PARTIAL}", "old")
    tidy_after_killed_writers(tmp_path / "g")
    assert (old.exists(), (tmp_path / "g" / "word").read_text()) == (False, "new")


def test_an_overwrite_that_was_cut_between_its_renames_is_taken_back(tmp_path: Path) -> None:
    host = writer_tag().rpartition("-")[0]
    folder(tmp_path / f".g*.{host}-{gone()}.old{PARTIAL}", "old")
    tidy_after_killed_writers(tmp_path / "g*")
    assert (tmp_path / "g*" / "word").read_text() == "old"


def test_a_work_folder_of_this_user_is_taken_as_it_was_left(tmp_path: Path) -> None:
    work_folder(tmp_path / "a" / ".g.work")
    (tmp_path / "a" / ".g.work" / "part").touch()
    work_folder(tmp_path / "a" / ".g.work")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", ".g.work", "part"]


@pytest.mark.parametrize("other", ["link", "file", "owner"])
def test_a_work_folder_that_somebody_else_made_is_refused(tmp_path: Path, other: str) -> None:
    planted = tmp_path / ".g.work"
    if other == "link":
        (tmp_path / "elsewhere").mkdir()
        planted.symlink_to(tmp_path / "elsewhere")
    elif other == "file":
        planted.touch()
    elif os.getuid():
        pytest.skip("only root can give a folder away")
    else:
        planted.mkdir()
        os.chown(planted, 12345, 12345)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FormatError, match=r"\.g\.work is a link or another user's"):
        work_folder(planted)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", ["flatten", "ingest"])
def test_no_command_works_in_a_folder_behind_a_link(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = weft.Graph.from_edges([[0, 1], [1, 0]], y=[0, 1], train_mask=[True, True])
    graph.save(tmp_path / "g")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "lock").write_text("kept")
    (tmp_path / ".out.work").symlink_to(tmp_path / "private")
    given = str(tmp_path / "g") if command == "flatten" else f"edges={tmp_path / 'edges.csv'}"
    assert main([command, given, "--out", str(tmp_path / "out")]) == 2
    assert "is a link or another user's" in capsys.readouterr().err
    assert (tmp_path / "private" / "lock").read_text() == "kept"
    assert not (tmp_path / "out").exists()
