"""Where true pairs stand among their negatives."""

import math

import pytest
import torch
from torch import Tensor

from weft.errors import InputError
from weft.tasks.metrics import Counted, lower_is_better
from weft.tasks.ranking import (
    RANKING,
    average_precision,
    hits,
    mrr,
    num_negatives,
    ogb_hits,
    places,
    roc_auc,
    share_above,
)

OUTPUTS = torch.tensor([[5.0, 1.0, 2.0, 3.0], [2.0, 1.0, 2.0, 3.0], [1.0, 1.0, 2.0, 3.0]])
NONE = float("-inf")


def drawn(rows: int = 40, negatives: int = 7, *, ties: bool = False) -> Tensor:
    scores = torch.randn(rows, 1 + negatives, generator=torch.Generator().manual_seed(3))
    return scores.round() if ties else scores


def pooled(outputs: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([outputs[:, 0], outputs[:, 1:].flatten()]), torch.arange(outputs.numel()) < len(outputs)


def test_places_count_those_above_and_half_of_those_equal() -> None:
    assert places(OUTPUTS).tolist() == [1.0, 2.5, 3.5]
    assert mrr(OUTPUTS) == pytest.approx((1 + 1 / 2.5 + 1 / 3.5) / 3)
    assert hits(1)(OUTPUTS) == pytest.approx(1 / 3)
    assert hits(3)(OUTPUTS) == pytest.approx(2 / 3)


@pytest.mark.parametrize("ties", [False, True])
def test_places_are_the_mean_of_ogbs_two_ranks(ties: bool) -> None:
    outputs = drawn(ties=ties)
    true, negative = outputs[:, :1], outputs[:, 1:]
    optimistic, pessimistic = (negative > true).sum(1), (negative >= true).sum(1)
    rank = 0.5 * (optimistic + pessimistic).double() + 1
    torch.testing.assert_close(places(outputs), rank)
    assert mrr(outputs) == pytest.approx(float((1 / rank).mean()))
    assert RANKING["hits@3"](outputs, outputs) == pytest.approx(float((rank <= 3).double().mean()))


def test_a_model_that_scores_everything_alike_gets_what_chance_gives() -> None:
    flat = torch.zeros(4, 100)
    assert mrr(flat) == pytest.approx(1 / 50.5)
    assert hits(10)(flat) == 0
    assert ogb_hits(20)(flat, flat) == 0
    assert roc_auc(flat) == 0.5
    assert average_precision(flat) == pytest.approx(1 / 100)


@pytest.mark.parametrize("ties", [False, True])
def test_areas_are_scikit_learns(ties: bool) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, true = pooled(drawn(ties=ties))
    assert roc_auc(drawn(ties=ties)) == pytest.approx(sklearn.roc_auc_score(true, scores))
    assert average_precision(drawn(ties=ties)) == pytest.approx(sklearn.average_precision_score(true, scores))


def test_scores_that_a_sigmoid_would_make_alike_are_kept_apart() -> None:
    outputs = torch.tensor([[30.0, 20.0], [25.0, 18.0]])
    assert bool((torch.sigmoid(outputs) == 1.0).all())
    for metric in (mrr, hits(1), roc_auc, average_precision, ogb_hits(1)):
        assert metric(outputs, outputs) == 1.0


def test_ogbs_hits_go_by_the_kth_best_of_one_set_and_ties_are_no_hits() -> None:
    outputs = torch.tensor([[5.0, 4.0, 1.0], [3.0, 3.0, 2.0], [2.5, NONE, NONE]])
    # The negatives are 4, 3, 2, 1 for every pair.
    assert [ogb_hits(k)(outputs, outputs) for k in (1, 2, 3, 4)] == pytest.approx([1 / 3, 1 / 3, 1, 1])
    assert ogb_hits(5)(outputs, outputs) == 1.0  # fewer than 5 negatives
    assert share_above(torch.tensor([5.0, 0.5]), torch.tensor([4.0, 1.0]), 2) == 0.5  # no fewer than 2
    assert share_above(outputs[:, 0], torch.tensor([4.0, 3.0, 2.0, 1.0]), 2) == pytest.approx(1 / 3)
    # hits(k) has each pair among its own: the third stands alone, the second ties with its best.
    assert hits(1)(outputs) == pytest.approx(2 / 3)


def test_negatives_that_are_left_out_count_nowhere() -> None:
    outputs = drawn(ties=True)
    masked = outputs.clone()
    masked[:, 3] = NONE
    kept = outputs[:, [0, 1, 2, 4, 5, 6, 7]]
    for name, metric in RANKING.items():
        assert metric(masked, masked) == pytest.approx(metric(kept, kept)), name
    assert num_negatives(masked) == 6.0
    masked[0, 1:] = NONE
    assert float(places(masked)[0]) == 1.0
    assert num_negatives(masked) == pytest.approx(6 * 39 / 40)


def test_a_true_pair_of_the_lowest_score_does_not_tie_with_what_is_left_out() -> None:
    assert places(torch.tensor([[NONE, NONE, 0.0]])).tolist() == [2.0]


@pytest.mark.parametrize("name", ["mrr", "hits@1", "hits@10"])
def test_sums_of_parts_give_the_metric_of_all(name: str) -> None:
    metric, outputs = RANKING[name], drawn()
    assert isinstance(metric, Counted)
    assert not lower_is_better(metric)
    parts = [metric.counts(outputs[rows], None) for rows in (slice(0, 0), slice(0, 9), slice(9, 40))]
    assert metric.value(torch.stack(parts).sum(0)) == pytest.approx(metric(outputs))


def test_nothing_has_no_rank() -> None:
    for name, metric in RANKING.items():
        assert math.isnan(metric(torch.zeros(0, 4), torch.zeros(0))), name
    assert math.isnan(roc_auc(torch.zeros(3, 1)))


@pytest.mark.parametrize("name", sorted(RANKING))
def test_what_cannot_be_ranked_is_refused_in_one_line(name: str) -> None:
    broken = drawn()
    broken[3, 2] = math.nan
    for outputs, message in (
        (broken, "1 of 320 scores are NaN"),
        (torch.zeros(3), r"\[n, 1 \+ k\], those of true pairs first, got \[3\]"),
        (torch.zeros(3, 0), r"got \[3, 0\]"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            RANKING[name](outputs, outputs)
        assert "\n" not in str(caught.value)
