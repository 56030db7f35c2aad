"""How far a step is, on a terminal and nowhere else."""

import sys

import pytest

from weft.cli.share import shown


def test_a_terminal_is_shown_the_share_and_a_log_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown("writing the parts")(0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tell = shown("writing the parts")
    tell(0.25)
    tell(1.0)
    first, second, rest = capsys.readouterr().err.split("\r")
    assert (first.split(), second.split()[0], rest) == (["25", "%", "writing", "the", "parts"], "100", "")
