"""How far a step is, on a terminal and nowhere else."""

import sys
from pathlib import Path

import pytest

from weft.cli import ingest, main
from weft.cli.progress import clear_step, show_step, telling_share


def look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have somebody look: errors go to a terminal from now on."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_a_log_is_shown_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_step("rehearsing")
    telling_share("writing the parts")(0.5)
    clear_step()
    assert capsys.readouterr().err == ""


def test_a_line_replaces_the_one_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look(monkeypatch)
    tell = telling_share("writing the parts")
    tell(0.25)
    tell(1.0)
    show_step("rehearsing")
    lines = [line.strip("\r") for line in capsys.readouterr().err.split("\r\033[K")]
    assert lines == ["", "   25 %  writing the parts", "  100 %  writing the parts", "weft: rehearsing"]


def test_results_and_errors_leave_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    look(monkeypatch)
    ingest.say("columns of paper: x")
    assert capsys.readouterr().err == "\r\033[Kcolumns of paper: x\n"
    words = ["partition", str(tmp_path / "nothing"), "--parts", "2", "--out", str(tmp_path / "out")]
    assert main.main(words) == 2
    assert capsys.readouterr().err.rpartition("\r\033[K")[2].startswith("weft: error: ")
