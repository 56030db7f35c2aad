"""What classes weigh: as much as was asked for, in the mean of all training targets 1."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.strategies.single import Single
from weft.tasks.choose import TaskChoice


def star(y: list[int]) -> weft.Graph:
    """Nodes around one, all to train on."""
    n = len(y)
    edges = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)])
    return weft.Graph.from_edges(
        edges, x=torch.eye(n), y=torch.tensor(y), train_mask=torch.ones(n, dtype=torch.bool)
    )


def loss_of(y: list[int], outputs: torch.Tensor, **options: object) -> float:
    graph = star(y)
    task = TaskChoice.of({"name": "node_classification", **options}).make(graph)
    targets = Single(graph, task=task).targets["train"]
    return float(task.loss.summed(outputs, targets.y)) / targets.count


def test_balanced_classes_weigh_the_same_however_many_nodes_they_have() -> None:
    y = [0, 0, 0, 1]
    sure = torch.tensor([[9.0, 0.0]]).expand(4, 2)  # wrong of the one node of class 1 alone
    turned = torch.tensor([[0.0, 9.0]]).expand(4, 2)  # wrong of the three
    assert loss_of(y, sure, weights="balanced") == pytest.approx(loss_of(y, turned, weights="balanced"))
    assert loss_of(y, sure) < loss_of(y, turned), "unless they are asked to"


def test_twice_the_weights_are_the_same_loss_and_equal_ones_are_none() -> None:
    y, outputs = [0, 1, 1, 2], torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    once = loss_of(y, outputs, weights=[1.0, 5.0, 0.5])
    assert loss_of(y, outputs, weights=[2.0, 10.0, 1.0]) == pytest.approx(once)
    assert loss_of(y, outputs, weights=[3.0, 3.0, 3.0]) == pytest.approx(loss_of(y, outputs))
    assert once != pytest.approx(loss_of(y, outputs))


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"task\.weights: expected 2 numbers, one per class, got 3"):
        loss_of([0, 1], torch.zeros(2, 2), weights=[1.0, 1.0, 1.0])
    with pytest.raises(RecipeError, match=r"task\.weights: expected numbers of at least 0"):
        loss_of([0, 1], torch.zeros(2, 2), weights=[0.0, 0.0])


def test_smoothing_takes_its_share_of_a_target_to_all_classes() -> None:
    y, outputs = [0, 1, 1, 2], torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.cross_entropy(outputs, torch.tensor(y), label_smoothing=0.2)
    assert loss_of(y, outputs, smoothing=0.2) == pytest.approx(float(expected))
    assert loss_of(y, outputs) != pytest.approx(float(expected))
