"""The command weft report."""

from pathlib import Path

import pytest

from weft.cli.main import main


def test_report_is_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["train", "--set", "data.nodes=200", "--set", "train.epochs=3", "--out", str(tmp_path / "run")])
        == 0
    )
    (tmp_path / "run" / "report.html").unlink()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()
