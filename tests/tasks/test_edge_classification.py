"""Classes of edges: they are learned, weighed as those of nodes are, and numbers are none."""

import link_jobs
import pytest
import torch
from ranks import run_ranks
from rated import made, rated

import weft
from weft.errors import GraphError, RecipeError
from weft.tasks.edge_classification import EdgeClassification

NAME = "edge_classification"


def test_classes_are_learned() -> None:
    task = {"name": NAME, "width": 8, "edge_data": ["known"], "split": {"val": 0.2, "test": 0.2}}
    summary = weft.train(rated(), "sage", hidden=16, epochs=40, lr=0.05, dropout=0.0, task=task)
    assert summary.metric == "accuracy"
    assert summary.metrics["test"]["accuracy"] > 0.85, "the larger class has 0.7 of these edges"


def test_workers_with_halos_learn_what_one_process_does() -> None:
    for distances in run_ranks(2, link_jobs.classes_of_edges_on_halo, timeout=60.0):
        assert {"losses", "scores"} < {*distances}
        assert {name: far for name, far in distances.items() if not far <= 1e-9} == {}


def test_there_are_as_many_classes_as_all_edges_have() -> None:
    graph = rated()
    rare = graph.edge_data["label"].clone()
    rare[7] = 4
    edges = graph.edge_index
    task, _ = made(weft.Graph.from_edges(edges, x=graph.x, edge_data={"label": rare}), NAME, edge_data=None)
    assert isinstance(task, EdgeClassification)
    assert task.width == 5


def test_balanced_classes_weigh_the_same() -> None:
    task, shown = made(rated(), NAME, weights="balanced")
    y = task.targets(shown, lambda value: value)["train"].y
    even = torch.zeros(len(y), 2)
    sums = [float(task.loss.summed(even[y == kind], y[y == kind])) for kind in (0, 1)]
    assert sums[0] == pytest.approx(sums[1])
    assert sum(sums) == pytest.approx(len(y) * torch.log(torch.tensor(2.0)).item())


def test_numbers_are_no_classes() -> None:
    with pytest.raises(GraphError, match=r"'rating' of edges holds numbers, not classes .*'edge_regression'"):
        made(rated(), NAME, label="rating")


def test_weights_of_another_number_of_classes_are_refused() -> None:
    task, shown = made(rated(), NAME, weights=[1.0, 2.0, 3.0])
    with pytest.raises(RecipeError, match=r"task\.weights: expected 2 numbers"):
        task.targets(shown, lambda value: value)


def test_a_class_beyond_all_is_told_with_its_edge_before_a_head_is_made_for_it() -> None:
    graph = weft.Graph.from_edges(
        [[0, 1], [1, 2]], num_nodes=3, edge_data={"label": torch.tensor([0, 10**8])}
    )
    with pytest.raises(GraphError, match=r"task\.label: 'label' .* 100,000,000 at the edge from node 1 to 2"):
        made(graph, NAME, edge_data=None, split={"val": 0.0, "test": 0.0})
