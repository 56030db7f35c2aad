"""Batches of a graph that several workers hold."""

import pair_jobs
import pytest
from ranks import run_ranks

from weft.comm import Group


def test_one_rank_draws_what_one_process_draws_without_hidden_edges() -> None:
    assert pair_jobs.hidden_batches(Group.alone()) == []


@pytest.mark.parametrize("size", [2, 4])
def test_seeds_of_others_and_hidden_edges_give_the_batches_of_one_process(size: int) -> None:
    for wrong in run_ranks(size, pair_jobs.hidden_batches):
        assert wrong == []
