"""The train command: what it leaves behind when a run ends before its time, and what it will not continue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.cli.main import main

SMALL = ["--set", "data.name=community", "--set", "data.nodes=200", "--set", "data.features=8"]
FAST = [*SMALL, "--set", "model.hidden=8", "--set", "train.epochs=3"]


def test_a_run_that_fails_is_drawn_as_far_as_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverges = ["--set", "train.optimizer=sgd", "--set", "train.lr=3e38"]
    assert main(["train", *FAST, *diverges, "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.splitlines()[-1].startswith("weft: error: the ")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "failed" in page
    assert "lower train.lr" in page


@pytest.mark.parametrize("at_once", [False, True], ids=["after its epoch", "at once"])
def test_a_run_that_is_interrupted_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at_once: bool
) -> None:
    from weft.comm.signals import _Requests

    def asked(self: _Requests) -> bool:
        if at_once:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(_Requests, "asked", asked)
    assert main(["train", *FAST, "--out", str(tmp_path / "run")]) == 130
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    assert "interrupted" in (tmp_path / "run" / "report.html").read_text()
    if not at_once:
        shown = capsys.readouterr().err
        assert "report.html" in shown
        assert "--resume" in shown


def test_a_run_that_may_not_begin_leaves_the_other_runs_report_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *FAST, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "report.html").write_text("mine")
    assert main(["train", *FAST, "--out", str(tmp_path / "run")]) == 2
    other = [*FAST, "--set", "train.lr=0.5", "--resume"]
    assert main(["train", *other, "--out", str(tmp_path / "run")]) == 2
    assert (tmp_path / "run" / "report.html").read_text() == "mine"


def test_a_run_that_was_killed_at_once_is_never_continued_on_built_in_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    (out / "checkpoint").mkdir(parents=True)
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert "holds no run to continue; leave out --resume" in capsys.readouterr().err
    (out / "events.jsonl").write_text('{"event": "epoch"}\n')
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert "has no run.json, which says what is trained there" in capsys.readouterr().err
    assert not (out / "run.json").exists()


def test_a_run_made_in_python_is_continued_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=200)
    weft.train(graph, "sage", hidden=8, epochs=2, out=tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "was made in Python, on a graph that its recipe does not name" in shown
    assert "weft.train(graph, model, ..., out=" in shown
    assert (tmp_path / "run" / "run.json").read_bytes() == before


LINKS = ["--set", "task.name=link_prediction", "--set", "task.width=4"]
TRAFFIC = ["--set", "task.name=node_regression", "--set", "task.label=y"]


@pytest.mark.parametrize(
    ("task", "metrics", "metric"),
    [
        (LINKS, {"mrr", "roc_auc", "ap", "hits@10", "negatives"}, "mrr"),
        (TRAFFIC, {"rmse", "mae", "r2"}, "rmse"),
    ],
    ids=["links", "numbers"],
)
def test_metrics_of_the_task_stand_by_name_in_what_is_printed(
    task: list[str], metrics: set[str], metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *FAST, *task, "--json", "--out", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert metrics <= set(told)
    assert {name: told[name] for name in metrics} == {name: told["metrics"]["test"][name] for name in metrics}
    assert "test_accuracy" not in told
    assert "accuracy" not in err
    assert f"test {metric} " in err
    assert f"val {metric} " in err.splitlines()[1], "the progress line has the metric that counts"
    start = next(event for event in weft.read_events(tmp_path / "run") if event["event"] == "start")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["task"] == start["task"] == run["task"] == task[1].removeprefix("task.name=")
    assert start["lower_is_better"] == (["rmse", "mae"] if metric == "rmse" else [])


def test_what_auto_came_to_is_told_and_validation_stands_in_for_a_test_that_is_not_there() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=90, features=4, classes=2)
    held = weft.Graph.from_edges(
        graph.edge_index, x=graph.x, y=graph.y, train_mask=graph.train_mask, val_mask=graph.val_mask
    )
    summary = weft.train(held, "sage", hidden=4, epochs=2)
    told = summary.to_dict()
    assert told["task"] == "node_classification"
    assert told["macro_f1"] == summary.metrics["val"]["macro_f1"] == summary.scores["macro_f1"]
    assert told["loss"] == summary.loss, "that of training, as ever"


def test_runs_that_begin_within_one_second_have_folders_of_their_own() -> None:
    asked = "import time; time.strftime = lambda _: 'NOW'; from weft.cli.train import default_out; "
    asked += "from weft.config import make_recipe; print(default_out(make_recipe({}), 'cora.toml'))"
    told = [subprocess.check_output([sys.executable, "-c", asked], text=True) for _ in range(2)]
    assert all(each.startswith("runs/cora-NOW-") for each in told)
    assert told[0] != told[1]
