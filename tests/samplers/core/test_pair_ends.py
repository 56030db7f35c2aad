"""The seeds of pairs: each end once, or once at each time that it is seen at."""

import pytest
import torch

from weft.errors import InputError
from weft.graph.node_pairs import Pairs
from weft.samplers.core.pair_ends import EndRows

PAIRS = Pairs(torch.tensor([7, 2]), torch.tensor([2, 9]), time=torch.tensor([50, 10]))
NEGATIVE = torch.tensor([[2, 4], [7, 7]])


def test_each_end_is_a_seed_once_and_is_found_again() -> None:
    rows = EndRows.of(PAIRS, NEGATIVE)
    assert (rows.seeds.tolist(), rows.times) == ([2, 4, 7, 9], None)
    for found, given in ((rows.src, PAIRS.src), (rows.dst, PAIRS.dst), (rows.negative, NEGATIVE)):
        assert torch.equal(rows.seeds[found], given)


def test_an_end_is_a_seed_at_each_time_of_its_pairs() -> None:
    rows = EndRows.of(PAIRS, NEGATIVE, times=PAIRS.time)
    assert rows.times is not None
    assert list(zip(rows.seeds.tolist(), rows.times.tolist())) == [
        (2, 10), (2, 50), (4, 50), (7, 10), (7, 50), (9, 10),
    ]  # fmt: skip
    assert torch.equal(rows.times[rows.src], PAIRS.time)
    assert torch.equal(rows.times[rows.negative], PAIRS.time[:, None].expand(2, 2))
    assert torch.equal(rows.seeds[rows.negative], NEGATIVE)


def test_negatives_of_both_sides_have_the_times_of_their_pairs() -> None:
    rows = EndRows.of(PAIRS, torch.tensor([[3], [3], [3], [5]]), times=PAIRS.time)
    assert rows.times is not None
    assert rows.times[rows.negative].flatten().tolist() == [50, 10, 50, 10]


def test_pairs_of_different_times_cannot_share_negatives() -> None:
    assert EndRows.of(PAIRS, torch.tensor([1, 2, 3])).negative.shape == (3,)
    with pytest.raises(InputError, match="pairs of different times cannot share them"):
        EndRows.of(PAIRS, torch.tensor([1, 2, 3]), times=PAIRS.time)
