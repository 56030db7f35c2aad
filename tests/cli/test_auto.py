"""strategy.name = "auto": the plan's recommendation is trained, and told in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plan_machine import machine

import weft.machine
from weft.cli.main import main
from weft.plan.machine import keep_machine
from weft.report.read import read_run as read_report
from weft.train.saved.run_folder import read_run

SMALL = ["--set=data.name=community", "--set=data.nodes=150", "--set=data.features=8", "--set=model.hidden=4"]
AUTO = [*SMALL, "--set=train.epochs=2", "--set=strategy.name=auto"]


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_machine(replace(machine(), cores=weft.machine.usable_cores()))


def told_line(shown: str) -> str:
    (line,) = (line for line in shown.splitlines() if line.startswith("weft: strategy "))
    assert "the fastest exact one that fits" in line
    return line


def test_one_process_trains_what_is_recommended_and_goes_on_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", *AUTO, *out]) == 0
    assert told_line(capfd.readouterr().err).startswith("weft: strategy single on 1 worker")
    assert read_run(tmp_path / "run")["recipe"]["strategy"]["name"] == "single"
    assert "Forecast and measured" in (tmp_path / "run" / "report.html").read_text()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "data = {name = 'community', nodes = 150, features = 8}\nmodel = {hidden = 4}\n"
        "strategy = {name = 'auto'}\ntrain = {epochs = 3}\n"
    )
    assert main(["train", str(recipe), *out, "--resume"]) == 0
    assert "weft: strategy" not in capfd.readouterr().err  # the run has one


@pytest.mark.slow
def test_several_workers_train_what_is_recommended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", *AUTO, "--workers", "2", "--out", str(out)]) == 0
    taken = read_run(out)["recipe"]["strategy"]["name"]
    assert told_line(capfd.readouterr().err).startswith(f"weft: strategy {taken}")
    assert taken != "single"
    foretold = json.loads((out / "forecast.json").read_text())
    traffic = read_report(out).traffic
    assert traffic is not None
    assert (traffic.total.bytes_sent, traffic.total.messages) == (
        foretold["bytes_per_epoch"],
        foretold["messages_per_epoch"],
    )
    assert "Forecast and measured" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--set=strategy.parts=4"], "strategy.parts: 'auto' chooses all of [strategy]"),
        (["--workers", "1:2"], "'auto' plans for a number of workers"),
    ],
)
def test_auto_leaves_nothing_else_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], line: str
) -> None:
    assert main(["train", *AUTO, *asked, "--out", str(tmp_path / "run")]) == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
