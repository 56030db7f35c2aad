"""What people see: short, aligned, and the same in a log whatever the number of epochs."""

import json
from pathlib import Path

import pytest
from torch import nn

from weft.cli.output import Lines, ProgressBar, describe_epoch, format_seconds, show_summary, summary_rows
from weft.train.saved.summary import Summary

START = {
    "event": "start",
    "epochs": 1000,
    "strategy": "single",
    "device": "cpu",
    "parameters": 1234,
    "why": "it fits",
}


def epoch(number: int) -> dict[str, object]:
    seconds = {"forward": 0.001, "backward": 0.002, "evaluate": 5.0}
    return {
        "event": "epoch",
        "epoch": number,
        "loss": 0.5,
        "val": {"accuracy": 0.75, "loss": 1},
        "seconds": seconds,
    }


def summary(**changes: object) -> Summary:
    values: dict[str, object] = {
        "loss": 0.1,
        "epochs": 20,
        "best_epoch": 7,
        "epoch_seconds_median": 0.01,
        "seconds": 130.0,
        "bytes_sent": 0,
        "messages": 0,
        "exposed_comm_seconds": 0.0,
        "batch_wait_share": None,
        "peak_memory_bytes": 2**30,
        "strategy": "single",
        "workers": 1,
        "out": "runs/[x]",
        "task": "node_classification",
        "metric": "accuracy",
        "metrics": {"test": {"accuracy": 0.8}},
        "stopped": "done",
        "model": nn.Identity(),
    }
    return Summary(**(values | changes))  # type: ignore[arg-type]


def test_a_log_of_a_thousand_epochs_has_about_fifty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines({"event": "graph", "num_nodes": 10, "num_edges": 20})
    lines(START)
    for number in range(1, 1001):
        lines(epoch(number))
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "10 nodes, 20 edges; 1,234 parameters; single, cpu: it fits"
    assert shown[1].startswith("epoch     1  ")
    assert shown[-1].startswith("epoch  1000  ")
    assert 50 <= len(shown) <= 53


def test_an_epoch_shows_loss_score_and_time_without_evaluation() -> None:
    assert describe_epoch(epoch(1)) == "loss 0.5000  val accuracy 0.7500  3.0 ms/epoch"


def test_the_bar_takes_every_event() -> None:
    with ProgressBar() as bar:
        for event in (
            {"event": "graph", "num_nodes": 1},
            START,
            epoch(1),
            {"event": "phase"},
            {"event": "end"},
        ):
            bar(event)
        bar({"event": "resume", "epoch": 3, "epochs": 9})
        assert bar.progress.tasks[0].completed == 3


def test_durations_read_well() -> None:
    assert [format_seconds(s) for s in (0.0032, 1.44, 125.0)] == ["3.2 ms", "1.4 s", "2 min 05 s"]


def test_the_table_says_which_weights_count(capsys: pytest.CaptureFixture[str]) -> None:
    rows = dict(summary_rows(summary()))
    assert rows["test accuracy"] == "0.8000"
    assert rows["val accuracy"] == "–"
    assert rows["epochs"] == "20 (done; weights of epoch 7)"
    show_summary(summary(stopped="interrupted"), None)
    shown = capsys.readouterr().err
    assert "weft train --out runs/[x] --resume" in shown
    show_summary(summary(stopped="interrupted"), Path("runs/[x]/report.html"))
    shown = capsys.readouterr().err
    assert "runs/[x]/report.html" in shown
    assert "weft train --out runs/[x] --resume" in shown
    assert dict(summary_rows(summary(metric="micro_f1")))["test accuracy"] == "0.8000"


def test_the_table_shows_what_the_task_is_judged_by_and_nothing_it_does_not_know() -> None:
    scores = {"test": {"mrr": 0.4, "negatives": 99.5, "loss": 1.0}, "val": {"mrr": 0.5}}
    links = {"task": "link_prediction", "metric": "mrr", "metrics": scores}
    rows = dict(summary_rows(summary(**links)))
    assert (rows["test mrr"], rows["val mrr"], rows["negatives"]) == ("0.4000", "0.5000", "99.5 a pair")
    assert not [name for name in rows if "accuracy" in name]
    assert dict(summary_rows(summary(metric="rmse", metrics={"test": {"rmse": 12345.678}})))["test rmse"] == (
        "12,345.7"
    )


def test_the_first_line_names_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    Lines()({**START, "task": "node_regression"})
    assert capsys.readouterr().err.startswith("node_regression: 0 nodes")


def test_several_workers_show_what_they_sent_and_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"event": "traffic", "epoch": 1, "rank": 0, "volumes": [], "seconds": []}
    label = {"kind": "halo", "slot": 0, "direction": "forward"}
    event["volumes"] = [{**label, "peer": 1, "bytes_sent": 2048, "messages_sent": 3}]
    event["seconds"] = [{**label, "exposed": 0.004, "hidden": 0.001}]
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
    show_summary(summary(workers=2, out=str(tmp_path)), None)
    shown = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert ["in", "an", "epoch", "bytes", "messages", "waited", "hidden"] in shown
    assert ["halo", "rows", "1", "2.00", "KiB", "3", "4.00", "ms", "1.00", "ms"] in shown
    assert ["together", "2.00", "KiB", "3", "4.00", "ms", "1.00", "ms"] in shown
    assert any(line[-5:] == ["(the", "largest", "of", "2", "workers)"] for line in shown)


def test_a_memory_plan_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    layers = [{"choice": "recompute"}, {"choice": "keep"}, {"choice": "recompute"}]
    told = {"memory": 4096, "peak": 3072, "everything": 8192, "seconds": 0.0021, "layers": layers}
    Lines()({"event": "memory_plan", **told})
    assert capsys.readouterr().err == (
        "memory: 3 KiB of 4 KiB, 8 KiB if all were kept; recompute layers 1, 3, keep layer 2; "
        "2.1 ms more a step\n"
    )
