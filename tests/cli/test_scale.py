"""`weft scale`: asks a run that goes on for more workers, or fewer."""

from pathlib import Path

import pytest

from weft.cli.elastic import SPAN, WANTED, _taken
from weft.cli.main import main
from weft.train.saved.claim import LOCK, claimed


def test_scaling_asks_once_and_within_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", str(tmp_path), "3"]) == 2
    assert "no run goes on there whose workers may change" in capsys.readouterr().err
    (tmp_path / SPAN).write_text('{"least": 2, "most": 4}')
    with claimed(tmp_path):
        assert main(["scale", str(tmp_path), "5"]) == 2
        assert "5 workers: the run may have 2 to 4, as --workers said" in capsys.readouterr().err
        assert main(["scale", str(tmp_path), "3"]) == 0
    assert _taken(tmp_path / WANTED) == 3
    assert _taken(tmp_path / WANTED) is None


def test_a_run_whose_launcher_was_killed_is_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / SPAN).write_text('{"least": 2, "most": 4}')
    (tmp_path / LOCK).write_text("4711\n")  # both stay behind after SIGKILL
    assert main(["scale", str(tmp_path), "3"]) == 2
    said = capsys.readouterr().err
    assert "the run is not running, its launcher was killed; continue it with `weft train --out" in said
    assert "--resume --workers 2:4`" in said
    assert not (tmp_path / WANTED).exists()
