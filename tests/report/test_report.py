from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import weft
from weft.errors import FormatError, InputError
from weft.report import write_comparison, write_report

from . import samples


def test_report_lies_beside_the_run_and_replaces_an_old_one(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path / "first", samples.meta(), samples.events(3))
    (folder / "report.html").write_text("old")
    written = write_report(str(folder))
    assert written == folder / "report.html"
    assert written.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "report.html", "run.json"]


def test_no_other_file_is_written_over(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path / "first", samples.meta(), samples.events(3))
    table = tmp_path / "people.csv"
    table.write_text("id,age\n")
    for write in (write_report, lambda run, out: write_comparison([run, run], out)):
        with pytest.raises(InputError, match="is no page of a report; name another file"):
            write(folder, table)
        assert table.read_text() == "id,age\n"
        page = tmp_path / "page.html"
        assert write(folder, page) == write(folder, page) == page


def test_folder_that_holds_no_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"run\.json does not exist"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_do_not_stop_the_writing(tmp_path: Path) -> None:
    meta = samples.meta(command="weft \ud800")
    write_report(samples.write_run(tmp_path, meta, []))


def test_run_made_by_training_is_drawn_whole(tmp_path: Path) -> None:
    ring = torch.arange(12)
    graph = weft.Graph.from_edges(
        torch.stack([ring, ring.roll(1)]),
        x=torch.eye(12),
        y=ring % 3,
        train_mask=ring < 6,
        val_mask=(ring >= 6) & (ring < 9),
        test_mask=ring >= 9,
    )
    summary = weft.train(graph, "sage", hidden=4, epochs=3, device="cpu", out=tmp_path / "run")
    html = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "Learning",
        "Time",
        "Memory",
        "Graph",
        "Recipe",
        "Environment",
        "Again",
    ]
    assert "Not shown" not in html
    assert f"{100 * summary.test_accuracy:.1f}<span" in html
    assert "12 nodes and 12 edges, 1.00 a node." in html
    assert "class 0" in html


def words_of(html: str) -> str:
    """What a reader sees of a page."""
    body = re.sub(r"<(script|style).*?</\1>|<!--.*?-->", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_a_run_of_links_is_drawn_in_its_own_words(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, features=4, classes=2, seed=1)
    task = {"name": "link_prediction", "width": 4, "evaluate": {"name": "uniform", "count": 7}}
    summary = weft.train(graph, "sage", hidden=4, epochs=3, task=task, out=tmp_path / "run")
    seen = words_of(write_report(tmp_path / "run").read_text(encoding="utf-8"))
    assert summary.scores["negatives"] == 7
    assert f"{summary.scores['mrr']:.3f} Test MRR among 7 negatives a pair" in seen
    assert "link prediction" in seen
    assert "split pairs share train" in seen
    assert not re.search(r"accuracy|class", seen, re.IGNORECASE)


def test_a_run_of_numbers_is_drawn_in_its_own_words(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, features=4, classes=2, seed=1)
    options = {"hidden": 4, "epochs": 4, "lr": 0.1, "task": "node_regression"}
    summary = weft.train(graph, "sage", **options, out=tmp_path / "run")
    html = write_report(tmp_path / "run").read_text(encoding="utf-8")
    seen = words_of(html)
    assert "Test RMSE, lower is better" in seen
    assert f"{summary.scores['rmse']:.3f}" in seen
    assert "RMSE (lower is better)" in seen
    assert not re.search(r"accuracy|class", seen, re.IGNORECASE)
    assert "node regression" in seen
    scores = [e["val"]["rmse"] for e in weft.read_events(tmp_path / "run") if e["event"] == "epoch"]
    lowest = 1 + scores.index(min(scores))
    assert lowest != 1 + scores.index(max(scores))
    assert f"Best epoch: {lowest}, with {min(scores):.3f} validation RMSE, the lower the better." in seen
    weft.train(graph, "sage", **{**options, "epochs": 1}, out=tmp_path / "short")
    both = words_of(write_comparison([tmp_path / "run", tmp_path / "short"], tmp_path / "b.html").read_text())
    best = min((tmp_path / "run", tmp_path / "short"), key=rmse_of)
    assert f"Best on the test targets: {best.name} with {rmse_of(best):.4f}." in both


def rmse_of(run: Path) -> float:
    held = weft.read_events(run)[-1]["summary"]["rmse"]
    assert isinstance(held, float)
    return held
