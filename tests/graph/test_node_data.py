"""Labels and masks say what the task is."""

import numpy as np
import pytest
import torch
from five_edges import EDGES

from weft.graph import Graph
from weft.graph.node_data import TargetCounts


def test_labels_and_masks_describe_the_task() -> None:
    graph = Graph.from_edges(
        EDGES, y=np.array([0, 4, -1], dtype=np.int16), train_mask=np.array([True, True, False])
    )
    assert graph.y is not None
    assert graph.y.dtype == torch.int64
    assert (graph.num_classes, graph.multilabel) == (5, False)
    several = Graph.from_edges(EDGES, y=np.array([[0, 1], [1, 1], [0, 0]], dtype=np.uint8))
    assert several.y is not None
    assert several.y.dtype == torch.float32
    assert (several.num_classes, several.multilabel) == (2, True)
    assert Graph.from_edges(EDGES).num_classes == 0


def test_labels_in_one_column_are_taken_as_labels() -> None:
    graph = Graph.from_edges(EDGES, y=torch.tensor([[0], [2], [1]]))
    assert graph.y is not None
    assert graph.y.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("y", "counts"),
    [
        (None, (0, False)),
        (torch.tensor([-1, 4, 2]), (5, False)),
        (torch.tensor([0.5, float("nan")]), (0, False)),
        (torch.zeros(3, 7), (7, True)),
        (torch.zeros(0, dtype=torch.int64), (0, False)),
        (torch.zeros(0, 7), (0, True)),
    ],
)
def test_what_y_is_can_be_told_and_read_back(y: torch.Tensor | None, counts: tuple[int, bool]) -> None:
    found = TargetCounts.of(y)
    assert found == counts
    assert found == TargetCounts.of(None if y is None else y.numpy())
    assert TargetCounts.read(found._asdict()) == found


@pytest.mark.parametrize("y", [torch.eye(3), torch.tensor([2, 0, -1]), torch.tensor([0.5, -1.0]).double()])
def test_rows_of_a_file_become_y_again(y: torch.Tensor) -> None:
    again = TargetCounts.of(y).as_y(y.numpy().reshape(-1))
    assert torch.equal(again, y)
    assert again.dtype == y.dtype
