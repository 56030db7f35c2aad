"""Metrics equal scikit-learn's on labels, predictions and ties of every kind."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.errors import InputError
from weft.tasks.metrics import (
    METRICS,
    REGRESSION,
    accuracy,
    lower_is_better,
    macro_f1,
    mae,
    micro_f1,
    r2_around,
    regression,
    rmse,
    roc_auc,
)

sklearn = pytest.importorskip("sklearn.metrics")
r2 = REGRESSION["r2"]


def single_label(num_classes: int, seed: int, *, ties: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, num_classes, generator=generator)
    y = torch.cat(
        [torch.arange(num_classes), torch.randint(0, num_classes, (60 - num_classes,), generator=generator)]
    )
    return (logits.round() if ties else logits), y


def multi_label(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, 5, generator=generator)
    y = (torch.rand(60, 5, generator=generator) < 0.3).long()
    y[0], y[1] = 0, 1
    return logits, y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_classes", [2, 5])
def test_one_label_a_node(num_classes: int, seed: int) -> None:
    logits, y = single_label(num_classes, seed)
    predicted = logits.argmax(1)
    assert accuracy(logits, y) == pytest.approx(sklearn.accuracy_score(y, predicted))
    assert micro_f1(logits, y) == pytest.approx(sklearn.f1_score(y, predicted, average="micro"))
    assert macro_f1(logits, y) == pytest.approx(sklearn.f1_score(y, predicted, average="macro"))


def test_a_class_that_is_predicted_and_never_there_counts_and_one_that_is_neither_does_not() -> None:
    y, predicted = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 1, 1])
    logits = torch.nn.functional.one_hot(predicted, 4).float()
    assert macro_f1(logits, y) == pytest.approx(sklearn.f1_score(y, predicted, average="macro"))


@pytest.mark.parametrize("seed", range(3))
def test_several_labels_a_node(seed: int) -> None:
    logits, y = multi_label(seed)
    predicted = (logits > 0).long()
    assert accuracy(logits, y) == pytest.approx(sklearn.accuracy_score(y, predicted))
    assert micro_f1(logits, y) == pytest.approx(sklearn.f1_score(y, predicted, average="micro"))
    assert macro_f1(logits, y) == pytest.approx(sklearn.f1_score(y, predicted, average="macro"))
    assert roc_auc(logits, y) == pytest.approx(sklearn.roc_auc_score(y, logits, average="macro"))


@pytest.mark.parametrize("ties", [False, True])
def test_area_of_two_classes_and_of_many(ties: bool) -> None:
    logits, y = single_label(2, 0, ties=ties)
    score = torch.softmax(logits.double(), 1)
    assert roc_auc(logits, y) == pytest.approx(sklearn.roc_auc_score(y, score[:, 1]))
    logits, y = single_label(4, 1, ties=ties)
    score = torch.softmax(logits.double(), 1)
    assert roc_auc(logits, y) == pytest.approx(sklearn.roc_auc_score(y, score, multi_class="ovr"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=20))
def test_area_counts_ties_as_half(pairs: list[tuple[int, bool]]) -> None:
    y = torch.tensor([[int(label)] for _, label in pairs])
    logits = torch.tensor([[float(score)] for score, _ in pairs])
    if y.min() == y.max():
        assert math.isnan(roc_auc(logits, y))
    else:
        assert roc_auc(logits, y) == pytest.approx(sklearn.roc_auc_score(y[:, 0], logits[:, 0]))


def test_a_class_without_positive_nodes_is_left_out_of_the_area() -> None:
    y = torch.tensor([[1, 0], [0, 0], [1, 0]])
    logits = torch.tensor([[2.0, 1.0], [1.0, 0.0], [0.0, 3.0]])
    assert roc_auc(logits, y) == pytest.approx(0.5)


def numbers(columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(50, columns, generator=generator) * torch.logspace(0, 3, columns) + 7.0
    return y + torch.randn(50, columns, generator=generator), y


@pytest.mark.parametrize("columns", [1, 3])
def test_errors_of_numbers_are_scikit_learns(columns: int) -> None:
    outputs, y = numbers(columns)
    assert rmse(outputs, y) == pytest.approx(sklearn.root_mean_squared_error(y, outputs))
    assert mae(outputs, y) == pytest.approx(sklearn.mean_absolute_error(y, outputs))
    assert r2(outputs, y) == pytest.approx(sklearn.r2_score(y, outputs))


def test_one_number_a_node_is_a_column_and_never_compared_all_with_all() -> None:
    outputs, y = numbers(1)
    for metric in REGRESSION.values():
        assert metric(outputs, y.flatten()) == metric(outputs, y)
    with pytest.raises(InputError, match=r"outputs \[50, 1\] for y \[49\]"):
        rmse(outputs, y.flatten()[:49])
    with pytest.raises(InputError, match=r"outputs \[50, 2\] for y \[50\]"):
        mae(outputs.expand(50, 2), y.flatten())


def test_a_target_that_is_not_a_number_is_none() -> None:
    outputs, y = numbers(2)
    y[::3, 0] = math.nan
    y[:, 1] = math.nan  # a column without any target is left out
    outputs[::3, 0] = math.inf
    held = y[:, 0].isfinite()
    for metric in REGRESSION.values():
        assert metric(outputs, y) == pytest.approx(metric(outputs[held, :1], y[held, :1]))
        assert math.isnan(metric(outputs[:0], y[:0]))
        assert math.isnan(metric(outputs, torch.full_like(y, math.nan)))


def test_equal_targets_and_a_single_one() -> None:
    y = torch.full((6, 1), 0.1)
    assert r2(y, y) == sklearn.r2_score(y, y) == 1.0
    assert r2(y + 1.0, y) == sklearn.r2_score(y, y + 1.0) == 0.0
    assert math.isnan(r2(y[:1], y[:1]))


@pytest.mark.parametrize("name", ["rmse", "mae", "r2"])
def test_sums_of_parts_give_the_metric_of_all(name: str) -> None:
    outputs, y = numbers(3)
    y[::5] = math.nan
    metric = regression(7.0)[name]
    parts = [slice(0, 0), slice(0, 13), slice(13, 14), slice(14, 50)]
    sums = torch.stack([metric.counts(outputs[rows], y[rows]) for rows in parts]).sum(0)
    assert sums.dtype == torch.float64
    assert metric.value(sums) == pytest.approx(metric(outputs, y), rel=1e-12)


def test_targets_far_from_zero_lose_nothing_around_a_constant_that_all_know() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 1e9 + torch.randn(1000, 1, generator=generator, dtype=torch.float64)
    outputs = y + 0.1 * torch.randn(1000, 1, generator=generator, dtype=torch.float64)
    expected = sklearn.r2_score(y, outputs)
    around = r2_around(torch.tensor([1e9], dtype=torch.float64))
    sums = around.counts(outputs[:400], y[:400]) + around.counts(outputs[400:], y[400:])
    assert around.value(sums) == pytest.approx(expected, rel=1e-9)
    assert r2(outputs, y) != pytest.approx(expected, rel=1e-3)  # what the constant is for


def test_errors_are_better_when_lower_and_scores_when_higher() -> None:
    assert [name for name, metric in {**METRICS, **REGRESSION}.items() if lower_is_better(metric)] == [
        "rmse",
        "mae",
    ]
    assert not lower_is_better(lambda outputs, y: 0.0)
