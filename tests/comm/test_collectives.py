"""A sum over ranks under autograd is its own adjoint."""

import comm_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm import Group, all_reduce_sum
from weft.errors import GraphError


@pytest.mark.parametrize("size", [2, 4])
def test_adjoint_identity_holds_over_all_ranks(size: int) -> None:
    run_ranks(size, comm_jobs.adjoints)


def test_one_rank_hands_rows_and_gradients_through() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    all_reduce_sum(Group.alone(), x).sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 3))


def test_a_gradient_of_the_gradient_is_refused() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(
        GraphError, match=r"other workers has first derivatives alone; .* strategy = 'single'"
    ):
        torch.autograd.grad((all_reduce_sum(Group.alone(), x) ** 3).sum(), x, create_graph=True)
