"""Links end together."""

import numpy as np
import pytest

from weft.comm.balance import bits, shares

# Two pairs that talk much among themselves.
ROWS = np.array([[0.0, 100, 10, 10], [100, 0, 10, 10], [10, 10, 0, 100], [10, 10, 100, 0]])


def speeds(size: int = 4, **slow: float) -> np.ndarray:
    speed = np.full((size, size), 1e9)
    for pair, value in slow.items():
        one, other = int(pair[1]), int(pair[2])
        speed[one, other] = speed[other, one] = value
    return speed


def test_links_end_together_with_as_many_rows_as_were_asked_for() -> None:
    cost = 1 / speeds(_01=1e8)
    share = shares(ROWS, cost, mean=0.3, least=0.01)
    assert (share * ROWS).sum() == pytest.approx(0.3 * ROWS.sum())
    seconds = (share * ROWS * cost)[(ROWS > 0) & (share < 1) & (share > 0.01)]
    assert seconds.max() == pytest.approx(seconds.min())
    assert (shares(ROWS, cost, mean=1.0, least=0.01) == 1).all()


def test_slow_links_get_fewer_bits() -> None:
    chosen = bits(ROWS, speeds(_01=1e8), mean=8)
    assert chosen[0, 1] == chosen[1, 0] < chosen[2, 3] <= chosen[0, 2]
    even = np.full((3, 3), 5.0) * (1 - np.eye(3))
    assert (bits(even, speeds(3), mean=8)[even > 0] == 8).all()
    assert bits(np.zeros((1, 1)), np.full((1, 1), np.inf), mean=8).shape == (1, 1)
