from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import FormatError
from weft.report import write_report

from . import samples


def test_report_lies_beside_the_run_and_replaces_an_old_one(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path / "first", samples.meta(), samples.events(3))
    (folder / "report.html").write_text("old")
    written = write_report(str(folder))
    assert written == folder / "report.html"
    assert written.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "report.html", "run.json"]


def test_folder_that_holds_no_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"run\.json does not exist"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_do_not_stop_the_writing(tmp_path: Path) -> None:
    meta = samples.meta(command="weft \ud800")
    write_report(samples.write_run(tmp_path, meta, []))
