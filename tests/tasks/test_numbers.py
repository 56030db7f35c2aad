"""Numbers are learned standardised, and given back in the units of the training data."""

import pytest
import torch
from numbered_ring import ring

import weft
from weft.strategies.single import Single
from weft.tasks.base import head_of
from weft.tasks.choose import TaskChoice
from weft.tasks.loss import REGRESSION_LOSSES, own_loss
from weft.tasks.nodes import NodeTargets
from weft.tasks.numbers import Numbers, Units, moments


def test_the_units_are_those_of_training_nodes_alone() -> None:
    graph = ring()
    far = graph.y.clone()
    far[graph.test_mask] = 1e6
    models = [weft.train(ring(y=y), "sage", hidden=4, epochs=1).model for y in (graph.y, far)]
    (first, other) = (head_of(model) for model in models)
    assert isinstance(first, Units)
    assert isinstance(other, Units)
    assert float(first.values[0]) == pytest.approx(float(graph.y[graph.train_mask].mean()))
    assert torch.equal(first.bits, other.bits)


def test_numbers_far_from_zero_lose_no_digits() -> None:
    graph = ring()
    near = weft.train(graph, "sage", hidden=8, epochs=20)
    far = weft.train(ring(y=graph.y + 1e9), "sage", hidden=8, epochs=20)
    assert far.loss == pytest.approx(near.loss, rel=1e-3)
    assert far.metrics["test"]["rmse"] == pytest.approx(near.metrics["test"]["rmse"], rel=1e-3)


def test_the_loss_of_standardised_numbers_is_that_of_their_deviations() -> None:
    graph = ring()
    task = TaskChoice.of({"name": "node_regression"}).make(graph)
    targets = Single(task.prepared(graph), task=task).targets["train"]
    guess = torch.full((len(targets), 1), float(targets.y.mean()), dtype=torch.float64)
    assert float(task.loss.summed(guess, targets.y)) / len(targets) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
def test_what_each_number_loses_adds_up_to_the_loss(name: str) -> None:
    graph = ring()
    task = TaskChoice.of({"name": "node_regression", "loss": name}).make(graph)
    targets = Single(task.prepared(graph), task=task).targets["train"]
    guess = targets.y[:, None] + torch.linspace(-90.0, 90.0, len(targets), dtype=torch.float64)[:, None]
    each = task.loss.each(guess, targets.y)
    assert float(each.sum()) == pytest.approx(float(task.loss.summed(guess, targets.y)))
    spread = float(targets.y.std(unbiased=False))
    assert float(each[-1]) == pytest.approx(
        float(REGRESSION_LOSSES[name].each(guess / spread, targets.y / spread)[-1])
    )


def test_the_units_are_those_of_all_workers() -> None:
    y = ring().y.double()
    mine, others = NodeTargets(torch.arange(20), y, 0), y[20:]
    mine.count = len(y)
    mean = float(y.mean())
    sums = [others.sum(), ((others - mean) ** 2).sum()]  # what the others add, one call after the other
    assert moments(mine, lambda own: own + sums.pop(0)) == pytest.approx((mean, float(y.std(unbiased=False))))


def test_a_loss_of_ones_own_is_given_the_units_of_the_data() -> None:
    own = own_loss("squared", lambda outputs, y: (outputs[:, 0] - y) ** 2)
    numbers = Numbers(standardise=True)
    targets = Single(ring()).targets["train"]
    assert numbers.loss(own, targets, lambda value: value) is own
