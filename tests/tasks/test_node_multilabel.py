"""Several labels per node: a column of zeros and ones for each."""

import pytest
import torch
import torch.nn.functional as F

import weft
from weft.errors import GraphError, InputError
from weft.tasks.node_multilabel import NodeMultilabel

TRAIN = torch.tensor([True, False, True])
Y = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])


def graph(y: object = Y) -> weft.Graph:
    return weft.Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, y=y, train_mask=TRAIN)


def test_the_loss_is_the_mean_over_labels_of_each_training_node() -> None:
    task = NodeMultilabel()
    targets = task.targets(graph(), lambda sizes: sizes)["train"]
    outputs = torch.tensor([[0.3, -1.0], [2.0, 0.1]])
    expected = F.binary_cross_entropy_with_logits(outputs, Y[TRAIN], reduction="none")
    assert float(task.loss.summed(outputs, targets.y)) == pytest.approx(float(expected.mean(1).sum()))


def test_one_label_a_node_is_refused() -> None:
    with pytest.raises(GraphError, match="one number per node, not a column of zeros and ones per label"):
        NodeMultilabel().prepared(graph([0, 1, 0]))


@pytest.mark.parametrize("columns", [1, 3])
def test_outputs_have_a_column_for_each_label(columns: int) -> None:
    task = NodeMultilabel()
    task.targets(graph(), lambda sizes: sizes)
    task.check_rows(torch.zeros(3, 2), 3)
    with pytest.raises(InputError, match=f"gives {columns} outputs a node, the graph has 2 classes"):
        task.check_rows(torch.zeros(3, columns), 3)
