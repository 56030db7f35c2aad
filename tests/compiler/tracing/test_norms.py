"""Batch norms that do not train, written out, against torch's own."""

import pytest
import torch
from torch import nn

from weft.compiler.tracing.norms import FixedNorms

NARROW = torch.bfloat16


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(7, 4), (7, 4, 3), (7, 4, 2, 3)])
def test_a_norm_that_is_fixed_gives_what_torch_gives(shape: tuple[int, ...], affine: bool) -> None:
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    norm = kind(4, affine=affine).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    rows = torch.randn(shape)
    with FixedNorms():
        found = norm(rows)
    torch.testing.assert_close(found, norm(rows))


def test_a_norm_that_trains_and_one_that_torch_refuses_are_torchs_own() -> None:
    training, fixed, rows = nn.BatchNorm1d(4), nn.BatchNorm1d(4).eval(), torch.randn(7, 4)
    with FixedNorms():
        found = training(rows)
        with pytest.raises(RuntimeError, match="should contain 1 elements"):
            fixed(rows[:, :1])
        assert fixed(rows.to(NARROW)).dtype is NARROW
    torch.testing.assert_close(found.mean(0), torch.zeros(4))
    assert training.num_batches_tracked == 1
