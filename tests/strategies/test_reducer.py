"""Gradients are summed over ranks in one order, whatever each rank's model used."""

import pytest
from model_jobs import gradients
from ranks import run_ranks


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_summed_where_any_rank_has_one_and_none_elsewhere(size: int) -> None:
    found = run_ranks(size, gradients)
    expected = [1.0, 2.0 * (1 + size), 3.0 * size, None]
    for sums, departed, again in found:
        assert sums == expected
        assert again == [2 * value for value in expected if value is not None]
        # The fourth parameter is the first bucket; as nobody has its gradient, none may leave before it.
        assert departed == 0
