"""Numbers of edges: learned standardised, given back in their units, whole ones too."""

import pytest
import torch
from rated import made, rated

import weft
from weft.errors import GraphError
from weft.tasks.numbers import Units


def test_numbers_are_learned_and_given_back_in_their_units() -> None:
    task = {"name": "edge_regression", "label": "rating", "width": 8, "edge_data": ["known"]}
    summary = weft.train(rated(), "sage", hidden=8, epochs=60, lr=0.02, dropout=0.0, task=task)
    assert summary.metric == "rmse"
    assert summary.metrics["test"]["r2"] > 0.7
    assert 1 < summary.metrics["test"]["rmse"] < 25, "the numbers are about 500, their deviation is about 40"


def test_whole_numbers_below_zero_are_numbers() -> None:
    task, shown = made(rated(whole=True), "edge_regression", label="rating")
    held = task.targets(shown, lambda value: value)
    assert sum(targets.count for targets in held.values()) == rated().num_edges
    assert float(held["train"].y.min()) < -1


def test_the_units_are_those_of_training_edges_alone() -> None:
    task, shown = made(rated(), "edge_regression", label="rating")
    train = task.targets(shown, lambda value: value)["train"]
    model = torch.nn.Linear(1, 1)
    model.add_module("task_head", Units())
    task.begin(model)
    mean, deviation = model.task_head.values.tolist()
    assert mean == pytest.approx(float(train.y.mean()))
    assert deviation == pytest.approx(float(train.y.std(correction=0)))


def test_one_number_is_predicted() -> None:
    graph = rated()
    two = {"rating": torch.zeros(graph.num_edges, 2)}
    with pytest.raises(GraphError, match=r"task\.label: 'rating' has 2 columns"):
        made(
            weft.Graph.from_edges(graph.edge_index, x=graph.x, edge_data=two),
            "edge_regression",
            label="rating",
        )
