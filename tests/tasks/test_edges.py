"""Tasks of edges: what a head reads, what is a message, and that batches say what the whole graph does."""

from typing import Any

import pytest
import torch
from rated import made, rated

import weft
from weft.errors import GraphError, RecipeError
from weft.graph.ends import edge_ends
from weft.samplers.edges import EdgeLoader
from weft.samplers.neighbor import NeighborSampler
from weft.tasks.base import EVALUATION
from weft.tasks.choose import TaskChoice
from weft.train.model import build_model

TASKS = ("edge_classification", "edge_regression")


@pytest.mark.parametrize("name", TASKS)
def test_no_model_reads_the_label(name: str) -> None:
    task, shown = made(rated(), name)
    assert "label" not in shown.edge_data
    for pairs in task.pairs.values():
        assert "label" not in pairs.data
        assert pairs.y is not None


def test_edges_to_train_on_are_messages_and_others_are_not() -> None:
    for batches in (False, True):
        task = TaskChoice.of({"name": TASKS[0]}).make(rated())
        task.hides(batches=batches)
        src, dst, _ = edge_ends(task.prepared(rated()))
        messages = {*zip(src.tolist(), dst.tolist())}
        ends = {split: {*zip(some.src.tolist(), some.dst.tolist())} for split, some in task.pairs.items()}
        assert ends["train"] <= messages
        assert not (ends["val"] | ends["test"]) & messages


def test_a_head_reads_the_data_that_is_named() -> None:
    graph = rated()

    def width(**options: Any) -> int:
        task, shown = made(graph, TASKS[0], **options)
        head: Any = build_model(shown, "sage", {"hidden": 4}, task=task).task_head
        return int(head.ends.edge_width)

    assert width(edge_data=["known"]) == 1
    assert width(edge_data=[]) == 0
    assert width(edge_data=None) == 2, "all but the label"
    with pytest.raises(
        RecipeError, match=r"task\.edge_data: edges have no 'label' to read; .* known, rating"
    ):
        width(edge_data=["label"])


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_of_all_neighbours_says_what_the_whole_graph_does(name: str) -> None:
    task, shown = made(rated(), name)
    held = task.targets(shown, lambda value: value)["val"]
    model = build_model(shown, "sage", {"hidden": 4, "layers": 2}, task=task).eval()
    h = model([shown.block()] * 2, shown.x)
    whole = held.outputs(model, h, lambda rows, ids: rows[ids], EVALUATION)
    loader = EdgeLoader(NeighborSampler(shown, [-1, -1]), None, task.pairs["val"], hide=False, batch_size=5)
    for batch in loader:
        rows = batch.pairs.keys
        outputs = task.of_batch(model, model(batch.blocks, batch.x), batch)
        torch.testing.assert_close(outputs, whole[rows])
        assert torch.equal(task.values_of_batch(batch), held.y[rows])


def test_what_is_known_of_edges_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task, shown = made(rated(), TASKS[0])
    asked: list[int] = []
    plain = type(task).known_of
    monkeypatch.setattr(type(task), "known_of", lambda self, pairs: asked.append(1) or plain(self, pairs))
    held = task.targets(shown, lambda value: value)["train"]
    model = build_model(shown, "sage", {"hidden": 4, "layers": 2}, task=task).eval()
    asked.clear()
    h = model([shown.block()] * 2, shown.x)
    one, two = (held.outputs(model, h, lambda rows, ids: rows[ids], epoch) for epoch in (0, 1))
    assert torch.equal(one, two)
    assert not asked


def test_labels_that_are_not_there_are_named() -> None:
    with pytest.raises(GraphError, match=r"label: the graph has no edge data 'stars'; it has: "):
        made(rated(), TASKS[0], label="stars")


@pytest.mark.slow
def test_workers_train_what_one_process_does() -> None:
    settings: dict[str, Any] = {"hidden": 4, "epochs": 3, "precision": "float64"}
    settings["task"] = {"name": "edge_regression", "label": "rating", "width": 4}
    one, two = (weft.train(rated(), "sage", workers=workers, **settings) for workers in (1, 2))
    assert two.metrics["test"]["rmse"] == pytest.approx(one.metrics["test"]["rmse"], rel=1e-10)
    for (name, first), second in zip(one.model.state_dict().items(), two.model.state_dict().values()):
        torch.testing.assert_close(first, second, msg=name)
