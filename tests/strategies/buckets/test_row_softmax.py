"""Softmax of rows in place against torch's."""

import pytest
import torch

from weft.kernels import native
from weft.strategies.buckets.row_softmax import reference_rows, softmax_rows


def given(columns: int, dtype: torch.dtype) -> torch.Tensor:
    scores = torch.randn(3, 5, columns, dtype=dtype, generator=torch.Generator().manual_seed(2)) * 30
    scores[0, 1, columns // 2 :] = -torch.inf
    scores[2, 4] = -torch.inf
    return scores


@pytest.mark.parametrize("native_core", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 15, 16, 37, 1000])
def test_rows_become_shares_and_give_the_logarithm_of_their_sum(
    columns: int, dtype: torch.dtype, native_core: bool
) -> None:
    scores = given(columns, dtype)
    nothing = scores.amax(-1) == -torch.inf
    shares = scores.softmax(-1).masked_fill(nothing.unsqueeze(-1), 0.0)
    held = scores.clone()
    found = softmax_rows(held) if native_core else reference_rows(held)
    torch.testing.assert_close(found, scores.logsumexp(-1))
    torch.testing.assert_close(held, shares)
    assert not held[2, 4].any()


def test_what_is_no_number_is_seen() -> None:
    for place in (0, 18, 20):
        scores = given(21, torch.float32)
        scores[1, 2, place] = torch.nan
        found = softmax_rows(scores)
        assert bool(found[1, 2].isnan())
        assert int(found.isnan().sum()) == 1


@pytest.mark.skipif(not native.available(), reason="the core is not built")
def test_threads_do_not_change_the_bits() -> None:
    generator = torch.Generator().manual_seed(4)
    one = torch.randn(600, 1001, generator=generator)
    two, before = one.clone(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = softmax_rows(one)
        torch.set_num_threads(3)
        assert softmax_rows(two).equal(first)
    finally:
        torch.set_num_threads(before)
    assert two.equal(one)
