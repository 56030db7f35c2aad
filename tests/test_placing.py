"""A folder takes its place in one step, and what killed writers left is put right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft import placing
from weft.placing import PARTIAL, move_into_place, tidy_after_killed_writers, writer_tag


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
