"""Labels and masks say what the task is."""

import numpy as np
import torch
from five_edges import EDGES

from weft.graph import Graph


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
