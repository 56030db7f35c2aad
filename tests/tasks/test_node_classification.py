"""One class per node: what y may be, and how many outputs it takes."""

import warnings

import pytest
import torch

import weft
from weft.errors import DataNote, GraphError, InputError
from weft.tasks.loss import own_loss
from weft.tasks.node_classification import NodeClassification

TRAIN = torch.tensor([True, True, False])


def graph(y: object) -> weft.Graph:
    return weft.Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, y=y, train_mask=TRAIN, check=False)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (torch.eye(3), "several labels per node; use task.name = 'node_multilabel'"),
        ([0.5, 1.5, 2.0], "holds numbers, not classes .*: 0.5 at node 0; use .* 'node_regression'"),
        ([0, 10**8, 1], "holds numbers, not classes .*: 100000000 at node 1"),
    ],
)
def test_what_is_no_class_is_refused_with_the_task_that_takes_it(y: object, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        NodeClassification().prepared(graph(y))


def test_outputs_need_a_column_for_each_class_unless_the_loss_is_ones_own() -> None:
    task = NodeClassification()
    task.targets(graph([0, 2, 1]), lambda sizes: sizes)
    task.check_rows(torch.zeros(3, 4), 3)
    with pytest.raises(InputError):
        task.check_rows(torch.zeros(2, 4), 3)
    with pytest.raises(InputError, match="gives 2 outputs a node, the graph has 3 classes"):
        task.check_rows(torch.zeros(3, 2), 3)
    own = NodeClassification(loss=own_loss("mine", lambda outputs, y: outputs.sum()))
    own.targets(graph([0, 2, 1]), lambda sizes: sizes)
    own.check_rows(torch.zeros(3, 1), 3)


def test_smoothing_and_weights_change_the_loss() -> None:
    outputs, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    found = []
    for options in ({}, {"smoothing": 0.2}, {"weights": [1.0, 3.0]}):
        task = NodeClassification(**options)
        task.targets(graph([0, 1, -1]), lambda sizes: sizes)
        found.append(float(task.loss.summed(outputs, y)))
    assert found[0] == pytest.approx(float(torch.nn.functional.cross_entropy(outputs, y, reduction="sum")))
    assert len({round(value, 4) for value in found}) == 3


def test_classes_that_no_node_has_are_told_where_they_are_most() -> None:
    with pytest.warns(DataNote, match=r"2 different classes, and the largest is 60,000: .* 60,001 outputs"):
        NodeClassification().prepared(graph([0, 60_000, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NodeClassification().prepared(graph([0, 90, -1]))
