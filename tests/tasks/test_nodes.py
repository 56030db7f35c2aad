"""Targets are the labelled nodes of each split, those that count here, wherever the target type lies."""

import pytest
import torch
from torch import nn

import weft
from weft.errors import GraphError, InputError
from weft.tasks.node_classification import NodeClassification
from weft.tasks.nodes import check_columns, node_targets

TRAIN = torch.tensor([True, False, False, True])


def graph(**data: object) -> weft.Graph:
    known = {"y": [0, -1, 1, 1], "train_mask": TRAIN, "test_mask": ~TRAIN, **data}
    nodes = {"author": {"num_nodes": 3}, "paper": {"num_nodes": 4, **known}}
    return weft.Graph.from_types(nodes, {("author", "writes", "paper"): torch.tensor([[0, 1], [1, 3]])})


def test_nodes_without_a_label_are_no_targets_and_rows_are_among_all_that_are_held() -> None:
    held = graph()
    found = node_targets(held, held.y)
    first = held.target_rows.start
    assert {split: targets.rows.tolist() for split, targets in found.items()} == {
        "train": [0, 3],
        "val": [],
        "test": [2],
    }
    assert found["train"].places.tolist() == [first, first + 3]
    h = torch.arange(7.0)[:, None]
    assert found["train"].outputs(nn.Identity(), h, None, 0).flatten().tolist() == [first, first + 3]


def test_splits_that_nobody_has_are_left_out_and_counts_are_those_of_all() -> None:
    task = NodeClassification()
    found = task.targets(graph(), lambda sizes: sizes * 2)  # as if another worker had as many
    assert {split: (len(held), held.count) for split, held in found.items()} == {
        "train": (2, 4),
        "test": (1, 2),
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [({"y": None}, "the graph has no labels y"), ({"train_mask": None}, "the graph has no train_mask")],
)
def test_what_training_needs_is_named(data: dict[str, object], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        NodeClassification().targets(graph(**data), lambda sizes: sizes)


def test_too_few_outputs_are_refused_and_more_only_where_each_stands_for_a_label() -> None:
    check_columns(3, 3, "classes", exact=True)
    check_columns(4, 3, "classes", exact=False)
    for given, exact in ((2, False), (2, True), (4, True)):
        with pytest.raises(InputError, match=f"gives {given} outputs a node, the graph has 3 classes"):
            check_columns(given, 3, "classes", exact=exact)
