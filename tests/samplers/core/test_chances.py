"""Chances of layer-neighbour sampling."""

import numpy as np
import pytest

from weft.samplers.core.chances import chances


def test_chances_are_fanout_over_degree_at_first() -> None:
    row = np.array([0, 0, 0, 0, 1, 1])
    given = chances(np.array([0, 1, 2, 3, 1, 2]), row, np.array([4, 2]), 2, 0)
    np.testing.assert_allclose(given, [0.5] * 4 + [1, 1])


@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_every_row_keeps_the_variance_of_uniform_draws(iterations: int) -> None:
    made = np.random.default_rng(1)
    degree = made.integers(1, 40, size=50)
    row = np.repeat(np.arange(50), degree)
    given = chances(made.integers(60, size=len(row)), row, degree, 7, iterations)
    assert ((given > 0) & (given <= 1)).all()
    inverse = np.bincount(row, 1 / given)
    np.testing.assert_allclose(inverse, np.where(degree <= 7, degree, degree**2 / 7), rtol=1e-6)
