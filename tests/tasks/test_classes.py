"""What classes weigh: as much as was asked for, in the mean of all training targets 1."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.strategies.single import Single
from weft.tasks.base import Targets
from weft.tasks.choose import TaskChoice
from weft.tasks.classes import Classes, Weights
from weft.tasks.loss import CROSS_ENTROPY


def star(y: list[int]) -> weft.Graph:
    """Nodes around one, all to train on."""
    n = len(y)
    edges = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)])
    return weft.Graph.from_edges(
        edges, x=torch.eye(n), y=torch.tensor(y), train_mask=torch.ones(n, dtype=torch.bool)
    )


class Labels(Targets):
    """Targets of one worker, whose classes alone are asked for."""

    def __init__(self, y: list[int]) -> None:
        self.y, self.count = torch.tensor(y), len(y)

    def __len__(self) -> int:
        return len(self.y)

    def outputs(self, *given: object) -> torch.Tensor:
        raise NotImplementedError


def alone(own: torch.Tensor) -> torch.Tensor:
    return own


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


def test_a_class_that_nobody_is_trained_on_changes_no_balance() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 2.0]])
    absent = torch.full((3, 1), -1e9)  # a third class that no target has, and no output tells
    three = Classes("balanced").loss(CROSS_ENTROPY, Labels([0, 0, 1]), alone, 3)
    two = Classes("balanced").loss(CROSS_ENTROPY, Labels([0, 0, 1]), alone, 2)
    y = torch.tensor([0, 0, 1])
    assert float(three.summed(torch.cat([outputs, absent], 1), y)) == pytest.approx(
        float(two.summed(outputs, y))
    )


@pytest.mark.parametrize("weights", ["balanced", [1.0, 4.0]])
def test_the_targets_of_all_workers_say_what_classes_weigh(weights: Weights) -> None:
    y, outputs = [0, 0, 0, 1], torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    whole = Classes(weights).loss(CROSS_ENTROPY, Labels(y), alone, 2)
    others = torch.tensor([1.0, 1.0], dtype=torch.float64)  # what the other worker counts of 0 and 1
    part = Classes(weights).loss(CROSS_ENTROPY, Labels(y[:2]), lambda own: own + others, 2)
    assert float(part.summed(outputs, torch.tensor(y))) == pytest.approx(
        float(whole.summed(outputs, torch.tensor(y)))
    )


def test_weights_and_smoothing_go_together() -> None:
    y, outputs = [0, 1, 1, 2], torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    weights = [1.0, 5.0, 0.5]
    expected = torch.nn.functional.cross_entropy(
        outputs, torch.tensor(y), torch.tensor(weights), label_smoothing=0.2
    )  # torch divides by what the targets weigh, here 1 in the mean
    assert loss_of(y, outputs, weights=weights, smoothing=0.2) == pytest.approx(float(expected))
