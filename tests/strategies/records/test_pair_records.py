"""Records of pairs: the steps of `sampled` with the same draws, from files that hold what both ends read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from link_jobs import WRITES, learned
from pair_jobs import pair_graph
from ranks import run_ranks
from rated import rated
from records_jobs import pairs_on_ranks

import weft
from weft.cli.main import main
from weft.comm.group import Group
from weft.errors import RecipeError
from weft.pipeline.flatten.flattening import flatten
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.records.records import RecordTraining
from weft.tasks.base import Task
from weft.tasks.choose import TaskChoice
from weft.train.model import build_model

LINKS: dict[str, Any] = {"name": "link_prediction", "width": 4}
TWO = {"name": "degree", "count": 2, "side": "both"}


def prepared(graph: weft.Graph, section: dict[str, Any]) -> tuple[weft.Graph, Task]:
    task = TaskChoice.of(section).make(graph)
    task.hides(batches=False)
    return task.prepared(graph), task


def stored(graph: weft.Graph, section: dict[str, Any], folder: Path, **options: Any) -> str:
    graph.save(folder / "g")
    flatten(folder / "g", folder / "r", task=section, **{"fanout": [-1, -1], **options})
    return str(folder / "r")


@pytest.mark.parametrize(
    ("kind", "section", "layer", "options"),
    [
        ("directed", LINKS, "sage", {}),
        ("mirrored", {**LINKS, "negatives": TWO}, "sage", {"fanout": [3, 2]}),
        ("hub", {**LINKS, "score": "mlp", "hide": "none"}, "gin", {"features": "value"}),
        (
            "typed",
            {**LINKS, "target": WRITES, "score": "distmult"},
            "sage",
            {"fanout": [2, 2]},
        ),
        ("rated", {"name": "edge_classification", "width": 4}, "sage", {}),
    ],
)
def test_the_first_epoch_is_that_of_sampled(
    kind: str, section: dict[str, Any], layer: str, options: dict[str, Any], tmp_path: Path
) -> None:
    graph = rated() if kind == "rated" else pair_graph(kind)
    records = stored(graph, section, tmp_path, **options)
    fanout = options.get("fanout", [-1, -1])
    found = []
    for made in (
        lambda held, task: RecordTraining(held, task=task, records=records, batch_size=7, prepare=0),
        lambda held, task: Sampled(held, task=task, fanout=fanout, batch_size=7, prepare=0),
    ):
        shown, task = prepared(graph, section)
        model = build_model(shown, layer, {"hidden": 8, "layers": 2}, task=task, seed=1)
        found.append(learned(made(shown, task), model, epochs=1))
    mine, theirs = found
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(
            mine[name], value, rtol=1e-4, atol=1e-5, msg=lambda told, name=name: f"{name}: {told}"
        )


def test_negatives_stay_as_they_were_drawn(tmp_path: Path) -> None:
    graph = pair_graph("mirrored")
    records = stored(graph, LINKS, tmp_path)
    shown, task = prepared(graph, LINKS)
    model = build_model(shown, "sage", {"hidden": 8, "layers": 2, "dropout": 0.0}, task=task, seed=1)
    strategy = RecordTraining(shown, task=task, records=records, batch_size=10**6, prepare=0)
    losses = [strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.0)) for _ in range(3)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


def test_ranks_read_their_share_and_sum_to_one_step(tmp_path: Path) -> None:
    graph = pair_graph("mirrored")
    records = stored(graph, LINKS, tmp_path)
    alone = pairs_on_ranks(Group.alone(), records, LINKS)
    for found in run_ranks(2, pairs_on_ranks, records, LINKS):
        for name, value in alone.items():
            assert found[name] == pytest.approx(value, abs=1e-8), name


def test_other_pairs_or_nodes_than_those_of_the_records_are_refused(tmp_path: Path) -> None:
    graph = pair_graph("mirrored")
    records = stored(graph, LINKS, tmp_path)
    other = {**LINKS, "split": {"seed": 5}}
    shown, task = prepared(graph, other)
    with pytest.raises(RecipeError, match="holds records of other pairs"):
        RecordTraining(shown, task=task, records=records)
    known = {"y": torch.arange(graph.num_nodes) % 2, "train_mask": torch.ones(graph.num_nodes) > 0}
    labelled = weft.Graph.from_edges(graph.edge_index, x=graph.x, **known)
    with pytest.raises(RecipeError, match="holds records of pairs, which 'node_classification' is not about"):
        RecordTraining(labelled, records=records)
    with pytest.raises(RecipeError, match="shared by a step; use 'uniform' or 'degree'"):
        flatten(tmp_path / "g", tmp_path / "no", task={**LINKS, "negatives": "inbatch"})
    with pytest.raises(RecipeError, match="are those of nodes: leave"):
        flatten(tmp_path / "g", tmp_path / "no", task={"name": "node_classification"})
    labelled.save(tmp_path / "nodes")
    flatten(tmp_path / "nodes", tmp_path / "n", fanout=[2, 2])
    shown, task = prepared(labelled, LINKS)
    with pytest.raises(RecipeError, match="holds records of nodes, not of pairs"):
        RecordTraining(shown, task=task, records=str(tmp_path / "n"))


def test_a_user_flattens_trains_and_finds_partners(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair_graph("mirrored").save(tmp_path / "g")
    words = ["--set", "task.name=link_prediction", "--set", "task.width=4", "--fanout", "3,2"]
    assert main(["flatten", str(tmp_path / "g"), *words, "--out", str(tmp_path / "r")]) == 0
    trained = ["train", "--set", f"data.path={tmp_path / 'r'}", "--set", "model.hidden=4"]
    trained += ["--set", "train.epochs=2"]
    assert main([*trained, "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["task"] == "link_prediction"
    assert told["strategy"] == "records"
    assert 0 < told["mrr"] <= 1
    infer = ["infer", str(tmp_path / "run"), "--graph", str(tmp_path / "g"), "--partners", "2"]
    assert main([*infer, "--out", str(tmp_path / "partners")]) == 0
    wrong = ["--set", "model.name=gcn", "--out", str(tmp_path / "x")]
    assert main(["flatten", str(tmp_path / "g"), *wrong]) == 2
    assert main([*trained, "--set", "strategy.evaluate=records", "--out", str(tmp_path / "no")]) == 2
