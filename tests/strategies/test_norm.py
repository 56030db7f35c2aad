"""Batch normalisation across ranks: outputs, gradients and running statistics of one process."""

import numpy as np
import pytest
import torch
from model_jobs import batch_norm, everything, normalised, rows_of
from ranks import run_ranks
from torch import nn

from weft.comm.group import Group
from weft.errors import InputError
from weft.strategies.norm import make_global


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_normalise_as_one_process_does(size: int) -> None:
    model = normalised()
    for _ in range(2):
        model.zero_grad()
        out = model(everything())
        (out.square() * torch.arange(7.0, dtype=torch.float64)[:, None]).sum().backward()
    shared = [*(parameter.grad for parameter in model.parameters()), *model[1].buffers()]
    for rank, found in enumerate(run_ranks(size, batch_norm)):
        expected = [out.detach()[rows_of(rank, size)], *shared]
        for held, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(held, wanted, atol=1e-10)


def test_rows_that_are_replicas_of_others_do_not_count() -> None:
    model = normalised()
    counted = torch.tensor([True] * 7 + [False] * 2)
    rows = torch.cat([everything(), 100 * everything()[:2]])
    expected = normalised()(everything())
    make_global(model, Group.alone(), counted)
    assert torch.allclose(model(rows)[:7], expected, atol=1e-12)
    with pytest.raises(InputError, match=r"over 3 of 9 rows.*use LayerNorm"):
        model(rows[:3])


def test_what_cannot_be_normalised_across_ranks_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="BatchNorm2d '0' looks at all rows"):
        make_global(nn.Sequential(nn.BatchNorm2d(3)), Group.alone())
    model = nn.Sequential(nn.BatchNorm1d(3))
    make_global(model, Group.alone())
    with pytest.raises(InputError, match="takes \\[rows, columns\\], got 3-D"):
        model(torch.zeros(2, 3, 4))
