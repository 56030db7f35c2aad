"""Several runs on one page: a table, curves over each other, and the settings that differ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.errors import FormatError, InputError
from weft.report import write_comparison

from . import samples
from .test_page import Tree, hostile_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    one = samples.write_run(tmp_path / "one", samples.meta(), samples.events(30))
    recipe = samples.meta()["recipe"]
    recipe["strategy"] = {"name": "halo", "exchange": {"name": "sampled", "p": 0.1}}
    return [one, samples.write_workers(tmp_path / "two", recipe=recipe)]


def test_table_curves_and_differences_are_drawn(runs: list[Path], tmp_path: Path) -> None:
    page = write_comparison(runs, tmp_path / "both.html").read_text()
    Tree(page)
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Results", "Curves", "Cost", "What differs", "Again"]
    assert "<h1>2 runs compared</h1>" in page
    for text in ("sampled, p 0.1", "3.91 KiB", "600 B", "4.00 ms", "345 MiB", "81.54 %"):
        assert text in page
    assert '<th scope="row">strategy.exchange.p</th><td>–</td><td>0.1</td>' in page
    assert "strategy.exchange.p" in page
    assert "train.lr" not in page, "what is the same everywhere is not told"
    assert page.count('class="line t2"') == 4
    assert page.count('class="line t1"') == 3, "one process sent nothing to draw a curve over"
    assert "http" not in page.replace("http-equiv", "")


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    folders = [samples.write_run(tmp_path / k / "run", samples.meta(), samples.events(3)) for k in "ab"]
    page = write_comparison(folders, tmp_path / "page.html").read_text()
    assert "a/run" in page
    assert "b/run" in page


def test_many_runs_and_broken_ones_are_drawn(tmp_path: Path) -> None:
    folders = [samples.write_run(tmp_path / str(k), samples.meta(), samples.events(3)) for k in range(8)]
    folders.append(samples.write_run(tmp_path / "empty", {}, None))
    folders.append(samples.write_run(tmp_path / "hostile", *hostile_run()))
    page = write_comparison(folders, tmp_path / "page.html").read_text()
    Tree(page)
    assert "line t1 dash" in page
    assert page.count("<script") == 1


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"run\.json does not exist"):
        write_comparison([tmp_path / "absent"], tmp_path / "page.html")
    with pytest.raises(InputError, match="at least one run"):
        write_comparison([])


def test_the_command_draws_one_run_or_several(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs[1])]) == 0
    assert main(["report", *map(str, runs)]) == 0
    assert main(["report", *map(str, runs), "--out", "both.html"]) == 0
    assert main(["report", str(runs[0]), "--out", "page.html"]) == 0
    shown = capsys.readouterr().out.split()
    assert shown == [str(runs[1] / "report.html"), "comparison.html", "both.html", "page.html"]
    assert all(Path(page).is_file() for page in shown)
