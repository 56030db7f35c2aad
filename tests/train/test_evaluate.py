"""Metrics equal scikit-learn's on labels, predictions and ties of every kind."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.train.evaluate import accuracy, macro_f1, micro_f1, roc_auc

sklearn = pytest.importorskip("sklearn.metrics")


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
