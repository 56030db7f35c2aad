"""Collectives under autograd are adjoint to each other."""

import comm_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm import Group, all_gather_rows, all_reduce_sum


@pytest.mark.parametrize("size", [2, 4])
def test_adjoint_identity_holds_over_all_ranks(size: int) -> None:
    run_ranks(size, comm_jobs.adjoints)


def test_one_rank_hands_rows_and_gradients_through() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    group = Group.alone()
    (2 * all_gather_rows(group, x) + all_reduce_sum(group, x)).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 3.0))


def test_integers_stay_integers() -> None:
    assert all_gather_rows(Group.alone(), torch.tensor([1, 2])).dtype == torch.int64
