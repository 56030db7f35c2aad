"""Numbers are learned standardised, and given back in the units of the training data."""

import pytest
import torch
from numbered_ring import ring

import weft
from weft.strategies.single import Single
from weft.tasks.base import head_of
from weft.tasks.choose import TaskChoice
from weft.tasks.numbers import Units


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
