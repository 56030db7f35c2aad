"""`weft bench` runs the benchmarks of a source checkout, and says so where there are none."""

from pathlib import Path

import pytest

from weft.cli import bench
from weft.cli.main import main


def test_cases_are_listed_in_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    assert "spmm" in capsys.readouterr().out


def test_an_installed_package_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "c" / "bench.py"))
    monkeypatch.chdir(tmp_path)
    assert main(["bench"]) == 2
    assert "source checkout" in capsys.readouterr().err


def test_an_unknown_case_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gat_laye"]) == 2
    assert capsys.readouterr().err.startswith("weft: error: no case 'gat_laye'; did you mean 'gat_layer'? ")
