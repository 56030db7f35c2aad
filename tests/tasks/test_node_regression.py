"""Regression on nodes: outputs in the user's units, scaling from training nodes alone."""

import pytest
import torch

import weft
from weft.errors import GraphError, RecipeError
from weft.strategies.single import Single
from weft.tasks.base import head_of
from weft.tasks.choose import TaskChoice
from weft.tasks.numbers import Units


def ring(nodes: int = 60, **data: object) -> weft.Graph:
    """A ring whose nodes have numbers that two features tell."""
    at = torch.arange(nodes)
    torch.manual_seed(0)
    x = torch.randn(nodes, 2)
    part = at % 3
    given = {"x": x, "y": 1000.0 + 50.0 * x[:, 0] - 20.0 * x[:, 1]}
    given |= {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    edges = torch.stack([at, (at + 1) % nodes])
    return weft.Graph.from_edges(torch.cat([edges, edges.flip(0)], 1), **(given | data))


def test_numbers_are_learned_and_given_back_in_their_units() -> None:
    summary = weft.train(ring(), "sage", hidden=16, epochs=150, lr=0.02)
    assert summary.metric == "rmse"
    assert summary.metrics["test"]["r2"] > 0.6
    assert 0 < summary.metrics["test"]["rmse"] < 40, "the numbers themselves are about 1,000"


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


def test_unknown_numbers_are_no_targets() -> None:
    graph = ring()
    y = graph.y.clone()
    y[0] = float("nan")
    assert Single(ring(y=y)).targets["train"].count == Single(graph).targets["train"].count - 1


def test_classes_may_be_predicted_as_numbers_and_not_the_other_way_round() -> None:
    whole = torch.arange(60) % 5
    summary = weft.train(ring(y=whole), "sage", hidden=4, epochs=2, task="node_regression", loss="huber")
    assert set(summary.metrics["val"]) == {"rmse", "mae", "r2", "loss"}
    with pytest.raises(GraphError, match=r"holds numbers, not classes"):
        weft.train(ring(), "sage", hidden=4, epochs=2, task="node_classification")


def test_the_loss_of_standardised_numbers_is_that_of_their_deviations() -> None:
    graph = ring()
    task = TaskChoice.of({"name": "node_regression"}).make(graph)
    targets = Single(task.prepared(graph), task=task).targets["train"]
    guess = torch.full((len(targets), 1), float(targets.y.mean()), dtype=torch.float64)
    assert float(task.loss.summed(guess, targets.y)) / len(targets) == pytest.approx(1.0)


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
