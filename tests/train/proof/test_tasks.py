"""The tasks of the proof: each strategy is given those whose targets it takes."""

import torch

from weft.train.proof.graphs import make_graph
from weft.train.proof.tasks import TASKS, make_task, taken_by


def test_a_strategy_gets_the_tasks_whose_targets_it_takes() -> None:
    assert taken_by("halo") == list(TASKS)
    assert taken_by("vertex_cut") == ["node_classification", "node_regression"]


def test_a_task_of_pairs_takes_its_targets_out_of_the_messages() -> None:
    graph = make_graph("hub")
    task, shown = make_task("link_prediction", graph)
    assert shown.num_edges < graph.num_edges
    again, _ = make_task("link_prediction", graph)
    assert all(torch.equal(held.src, again.pairs[split].src) for split, held in task.pairs.items())
    task, shown = make_task("edge_regression", graph)
    assert len(task.pairs["train"]) > 0
    task, shown = make_task("node_classification", graph)
    assert shown is graph


def test_of_several_types_the_relations_are_named() -> None:
    task, _ = make_task("link_prediction", make_graph("typed"))
    assert len(task.pairs["train"]) > 0
