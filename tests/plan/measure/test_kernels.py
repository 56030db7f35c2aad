"""Measured rates: one for every kind of work that is counted, and all above zero."""

import pytest

from weft.plan.measure import kernels
from weft.plan.rehearse.work import CountedWork


def test_every_kind_of_work_has_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_SECONDS", 0.0)
    monkeypatch.setattr(kernels, "_NODES", 200)
    monkeypatch.setattr(kernels, "_BEYOND", 1 << 12)
    found, told = kernels.rates()
    assert set(found) == set(CountedWork().to_dict())
    assert all(0 < rate < 1 for rate in found.values())
    assert "sums of edges, width 64, bfloat16" in told
    assert "dense products, bfloat16" in told
