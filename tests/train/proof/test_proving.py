"""Every legal pair at its exact point takes the steps of one process; one that is not there is found out."""

import proof_jobs
import pytest
import ranks
import torch

from weft.comm.group import Group
from weft.train.proof import legal_pairs
from weft.train.proof.proving import Observed, farthest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("size", "plain", "other"),
    [(2, 1, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((4, 4, 7), (2, 1, 1), (4, 1, 1)))],
    ids=["2", "4", "2-whole", "4-whole"],
)
def test_every_legal_pair_takes_the_steps_of_one_process(
    size: int, plain: int, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "LIMIT", 500.0)
    for *outcomes, away in ranks.run_ranks(size, proof_jobs.prove_cover, plain, other):
        assert proof_jobs.told(outcomes) == []
        assert len({outcome.pair for outcome in outcomes}) == len(legal_pairs(size))
        assert not away.holds


def test_what_differs_is_named_and_nothing_passes_for_equal() -> None:
    def seen(value: float, outputs: float = 0.0) -> Observed:
        values = {"losses": torch.tensor([value]), "weights": torch.tensor([50.0, 100.0])}
        return Observed(values, torch.tensor([1]), [torch.full((1, 2), outputs)])

    whole = Observed(seen(1.0).values, torch.arange(2), [torch.zeros(2, 2)])
    assert farthest(seen(1.0), whole) == (0.0, "losses")
    assert farthest(seen(1.5), whole) == (0.5, "losses")
    assert farthest(seen(float("nan")), whole)[0] > 1e5
    assert farthest(seen(1.0, outputs=0.25), whole) == (0.25, "outputs of step 1")
    less = Observed({"losses": torch.tensor([1.0])}, torch.tensor([1]), [torch.zeros(1, 2)])
    assert farthest(less, whole) == (float("inf"), "weights")


def test_a_group_of_one_proves_without_a_network() -> None:
    *outcomes, _ = proof_jobs.prove_cover(Group.alone(), other=3)
    assert proof_jobs.told(outcomes) == []
