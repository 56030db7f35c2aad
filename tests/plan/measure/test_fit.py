"""Rates are learned from runs: what was seen counts, what was not stays as it was known."""

import pytest

from weft.plan.measure.fit import Observation, fitted
from weft.plan.rehearse.work import CountedWork

KNOWN = {"calls": 1e-5, "edges": 1e-9, "products": 1e-10}


def test_runs_change_the_rates_that_they_use() -> None:
    seen = [Observation(CountedWork(calls=100 * n, edges=10**6), 2e-5 * 100 * n + 3e-3) for n in range(1, 6)]
    found = fitted(KNOWN, seen, ridge=1e-9)
    assert found["calls"] == pytest.approx(2e-5, rel=0.01)
    assert found["edges"] == pytest.approx(3e-9, rel=0.01)
    assert found["products"] == pytest.approx(KNOWN["products"])


def test_without_runs_nothing_changes_and_no_rate_is_ever_negative() -> None:
    assert fitted(KNOWN, []) == KNOWN
    odd = [
        Observation(CountedWork(calls=100, edges=10**6), 1e-4),
        Observation(CountedWork(calls=10, edges=10**6), 1e-2),
    ]
    assert all(rate > 0 for rate in fitted(KNOWN, odd).values())
