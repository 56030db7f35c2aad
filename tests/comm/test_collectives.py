"""A sum over ranks under autograd is its own adjoint."""

import comm_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm import Group, all_reduce_sum


@pytest.mark.parametrize("size", [2, 4])
def test_adjoint_identity_holds_over_all_ranks(size: int) -> None:
    run_ranks(size, comm_jobs.adjoints)


def test_one_rank_hands_rows_and_gradients_through() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    all_reduce_sum(Group.alone(), x).sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 3))
