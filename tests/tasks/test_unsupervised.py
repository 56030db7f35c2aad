"""Rows without labels: what is walked along, what is drawn, and that workers learn what one process does."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch
import torch.nn.functional as F

import weft
from weft.cli.main import main
from weft.datasets import open_dataset
from weft.graph.ends import edge_ends, pair_ids
from weft.graph.graph import Graph
from weft.layers.base import GraphInfo
from weft.tasks.base import put_head
from weft.tasks.choose import TaskChoice
from weft.tasks.unsupervised import Unsupervised

COMMUNITY = {"name": "community", "nodes": 120, "classes": 4, "features": 8, "seed": 1}
SAMPLED: dict[str, Any] = {"name": "sampled", "fanout": [4, 3], "batch_size": 512}


def prepared(graph: Graph, **options: Any) -> tuple[Unsupervised, Graph]:
    task = TaskChoice.of({"name": "unsupervised", "width": 8, "length": 3, "walks": 2, **options}).make(graph)
    assert isinstance(task, Unsupervised)
    task.hides(batches=True)
    return task, task.prepared(graph)


def test_walks_keep_to_edges_that_are_not_held_out() -> None:
    graph = open_dataset(**COMMUNITY)
    task, shown = prepared(graph, length=1, walks=20)
    src, dst, _ = edge_ends(shown)
    assert {*zip(src.tolist(), dst.tolist())} >= {
        *zip(task.pairs["train"].src.tolist(), task.pairs["train"].dst.tolist())
    }
    held = torch.cat([pair_ids(task.pairs[each].src, task.pairs[each].dst, 120) for each in ("val", "test")])
    assert not bool(torch.isin(pair_ids(src, dst, 120), held).any())


def test_the_loss_is_the_one_of_the_paper() -> None:
    graph = open_dataset(**COMMUNITY)
    task, shown = prepared(graph, negatives={"name": "degree", "count": 3})
    held = task.targets(shown, lambda value: value)["train"]
    model = put_head(task, torch.nn.Identity(), GraphInfo.of(shown), seed=0)
    h = torch.randn(120, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs = held.outputs(model, h, lambda rows, ids: rows[ids], 0)
    z, pairs = F.normalize(h, dim=1), task.pairs["train"]
    drawn = task.draw(pairs, 0).nodes
    expected = -F.logsigmoid((z[pairs.src] * z[pairs.dst]).sum(1))
    expected = expected - F.logsigmoid(-(z[pairs.src][:, None] * z[drawn]).sum(2)).sum(1)
    torch.testing.assert_close(task.loss.summed(outputs, held.y), expected.sum())


def test_negatives_come_by_degree_and_are_of_the_type_of_the_end() -> None:
    graph = open_dataset(**COMMUNITY)
    task, shown = prepared(graph, negatives={"name": "degree", "count": 50})
    task.targets(shown, lambda value: value)
    drawn = task.draw(task.pairs["train"], 0).nodes.flatten()
    met = torch.bincount(drawn, minlength=120).double()
    weight = shown.in_degree().double().pow(0.75)
    assert float(torch.corrcoef(torch.stack([met / met.sum(), weight]))[0, 1]) > 0.95


def test_rows_learned_without_labels_tell_classes_and_links() -> None:
    graph = open_dataset(name="community", nodes=200, degree=12, classes=4, features=8, seed=1)
    told: dict[str, Any] = {"hidden": 16, "layers": 2, "lr": 0.02, "eval_every": 20}
    task = {"name": "unsupervised", "width": 16, "length": 3, "walks": 5}
    summary = weft.train(graph, "gcn", epochs=20, task=task, strategy=SAMPLED, **told)
    assert summary.task == "unsupervised"
    assert summary.scores["mrr"] > 0.1, "chance among 100 negatives is 0.05"
    assert summary.scores["probe"] > 0.6, "chance among four classes is 0.25"


def test_a_graph_without_labels_has_no_probe() -> None:
    graph = open_dataset(**COMMUNITY)
    plain = weft.Graph.from_edges(graph.edge_index, x=graph.x)
    task = {"name": "unsupervised", "width": 4, "walks": 1, "length": 2}
    scores = weft.train(plain, "sage", epochs=1, hidden=4, task=task, strategy=SAMPLED).scores
    assert "probe" not in scores
    assert "mrr" in scores


def test_what_lies_beside_the_parts_tells_a_worker_all_that_is_drawn_from(tmp_path: Path) -> None:
    graph = open_dataset(**COMMUNITY)
    task, shown = prepared(graph)
    for name, held in task.files().items():
        (tmp_path / name).write_bytes(held)
    other = TaskChoice.of({"name": "unsupervised", "width": 8}).make(graph)
    assert isinstance(other, Unsupervised)
    other.read(tmp_path)
    for each in (task, other):
        each.targets(shown, lambda value: value)
    pairs = task.pairs["train"]
    assert torch.equal(other.pairs["train"].dst, pairs.dst)
    assert torch.equal(other.draw(pairs, 3, 1).nodes, task.draw(pairs, 3, 1).nodes)


@pytest.mark.slow
def test_workers_learn_what_one_process_does_and_read_their_pairs_beside_the_parts() -> None:
    graph = open_dataset(**COMMUNITY)
    told: dict[str, Any] = {
        "hidden": 8,
        "layers": 2,
        "epochs": 2,
        "precision": "float64",
        "strategy": SAMPLED,
    }
    told["task"] = {"name": "unsupervised", "width": 8, "length": 3, "walks": 2}
    one, two = (weft.train(graph, "sage", workers=workers, **told) for workers in (1, 2))
    assert two.loss == pytest.approx(one.loss, rel=1e-10)
    for name in ("mrr", "probe", "roc_auc"):
        assert two.scores[name] == pytest.approx(one.scores[name], abs=1e-9), name


def test_a_run_from_the_command_line_resumes_and_gives_a_row_per_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "task.name=unsupervised",
        "task.width=4",
        "task.walks=2",
        "task.length=2",
        "strategy.name=sampled",
    ]
    words += ["data.nodes=100", "model.hidden=4", "strategy.batch_size=256"]
    given = [part for word in words for part in ("--set", word)]
    for epochs, out in ((2, "whole"), (1, "cut"), (2, "cut")):
        more = ["--resume"] if (epochs, out) == (2, "cut") else []
        command = [
            "train",
            *given,
            "--set",
            f"train.epochs={epochs}",
            "--out",
            str(tmp_path / out),
            "--json",
            *more,
        ]
        assert main(command) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert told[2]["loss"] == told[0]["loss"]
    assert 0 <= told[0]["probe"] <= 1
    assert main(["infer", str(tmp_path / "whole"), "--out", str(tmp_path / "rows")]) == 0
    rows = parquet.read_table(tmp_path / "rows").to_pydict()
    assert sorted(rows["id"]) == [*range(100)]
    assert {len(row) for row in rows["embedding"]} == {4}
