"""The rule of Dorylus: 6 s at first, then a multiple of the running mean, never below half a second."""

import pytest

from weft.strategies.tensor_workers.deadlines import RATIO, Deadlines


def test_deadlines_follow_the_running_mean_of_each_operator() -> None:
    deadlines = Deadlines()
    assert deadlines.of("a") == 6.0
    deadlines.took("a", 1.0)
    assert deadlines.of("a") == RATIO
    deadlines.took("a", 3.0)
    assert deadlines.of("a") == pytest.approx(RATIO * (0.95 * 1.0 + 0.05 * 3.0))
    deadlines.took("b", 0.001)
    assert deadlines.of("b") == 0.5
    assert deadlines.of("c") == 6.0
