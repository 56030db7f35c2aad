"""Where true edges stand among negatives."""

import math

import pytest
import torch

from weft.errors import InputError
from weft.train.ranking import auc, hits, mrr, places

POSITIVE = torch.tensor([5.0, 2.0, 1.0])
NEGATIVE = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])


def test_places_count_those_above_and_half_of_those_equal() -> None:
    assert places(POSITIVE, NEGATIVE).tolist() == [1.0, 2.5, 3.5]
    assert mrr(POSITIVE, NEGATIVE) == pytest.approx((1 + 1 / 2.5 + 1 / 3.5) / 3)
    assert hits(POSITIVE, NEGATIVE, 1) == pytest.approx(1 / 3)
    assert hits(POSITIVE, NEGATIVE, 3) == pytest.approx(2 / 3)


def test_a_model_that_scores_everything_alike_gains_nothing() -> None:
    flat = torch.zeros(4), torch.zeros(4, 99)
    assert mrr(*flat) == pytest.approx(1 / 50.5)
    assert hits(*flat, 10) == 0
    assert auc(*flat) == 0.5


def test_auc_is_the_share_of_pairs_in_order() -> None:
    pairs = [(p > n) + 0.5 * (p == n) for p in POSITIVE.tolist() for n in NEGATIVE.flatten().tolist()]
    assert auc(POSITIVE, NEGATIVE) == pytest.approx(sum(pairs) / len(pairs))


def test_nothing_has_no_rank_and_wrong_shapes_are_refused() -> None:
    assert math.isnan(mrr(torch.zeros(0), torch.zeros(0, 3)))
    assert math.isnan(auc(torch.zeros(0), torch.zeros(0, 3)))
    with pytest.raises(InputError, match=r"\[n, count\]"):
        mrr(torch.zeros(3), torch.zeros(2, 3))
