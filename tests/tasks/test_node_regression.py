"""Regression on nodes: outputs in the user's units, scaling from training nodes alone."""

import pytest
import torch
from numbered_ring import ring

import weft
from weft.errors import GraphError, RecipeError
from weft.strategies.single import Single
from weft.tasks.base import head_of


def test_numbers_are_learned_and_given_back_in_their_units() -> None:
    summary = weft.train(ring(), "sage", hidden=16, epochs=150, lr=0.02)
    assert summary.metric == "rmse"
    assert summary.metrics["test"]["r2"] > 0.6
    assert 0 < summary.metrics["test"]["rmse"] < 40, "the numbers themselves are about 1,000"


def test_unknown_numbers_are_no_targets() -> None:
    graph = ring()
    y = graph.y.clone()
    y[0] = float("nan")
    assert Single(ring(y=y)).targets["train"].count == Single(graph).targets["train"].count - 1


def test_without_any_known_number_the_first_node_is_named() -> None:
    y = torch.full((60,), float("nan"), dtype=torch.float64)
    with pytest.raises(GraphError, match=r"no node of train_mask has a target: y is nan .* first is node 0"):
        weft.train(ring(y=y), "sage", epochs=1, task="node_regression")


def test_numbers_below_zero_and_whole_ones_with_gaps_are_learned() -> None:
    y = torch.arange(60).double() - 30
    y[0] = float("nan")
    summary = weft.train(ring(y=y), "sage", hidden=4, epochs=2, task="node_regression")
    assert set(summary.metrics["train"]) == {"rmse", "mae", "r2", "loss"}
    with pytest.raises(
        GraphError, match=r"y holds nan at node 0 and whole numbers elsewhere: name task\.name"
    ):
        weft.train(ring(y=y + 30), "sage", epochs=1)


def test_classes_may_be_predicted_as_numbers_and_not_the_other_way_round() -> None:
    whole = torch.arange(60) % 5
    summary = weft.train(ring(y=whole), "sage", hidden=4, epochs=2, task="node_regression", loss="huber")
    assert set(summary.metrics["val"]) == {"rmse", "mae", "r2", "loss"}
    with pytest.raises(GraphError, match=r"holds numbers, not classes"):
        weft.train(ring(), "sage", hidden=4, epochs=2, task="node_classification")


def test_a_loss_of_another_task_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"train\.loss: expected one of 'auto', 'mse', 'mae', 'huber'"):
        weft.train(ring(), "sage", epochs=1, task="node_regression", loss="bce")
    with pytest.raises(RecipeError, match=r"train\.metric"):
        weft.train(ring(), "sage", epochs=1, task="node_regression", metric="accuracy")


def test_the_best_epoch_is_lowest_in_an_error() -> None:
    seen: list[float] = []
    summary = weft.train(
        ring(), "sage", hidden=8, epochs=30, lr=0.1, progress=lambda event: _note(seen, event)
    )
    assert summary.metrics["val"]["rmse"] == pytest.approx(min(seen), rel=1e-6)


def _note(seen: list[float], event: dict[str, object]) -> None:
    if event["event"] == "epoch":
        seen.append(event["val"]["rmse"])  # type: ignore[index]


def test_numbers_are_learned_as_they_are_where_that_is_asked_for() -> None:
    graph = ring()
    plain = weft.train(
        graph, "sage", hidden=4, epochs=1, task={"name": "node_regression", "standardise": False}
    )
    assert head_of(plain.model) is None
    assert plain.loss > 1e5, "the mean of squares of numbers about 1,000"
    assert weft.train(graph, "sage", hidden=4, epochs=1).loss < 10
