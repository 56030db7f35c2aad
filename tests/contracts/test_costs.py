"""Every strategy tells a plan what it may try."""

import pytest

from weft.strategies.base import strategies
from weft.strategies.strategy_cost import cost_of, costs


def test_every_cost_is_that_of_a_strategy() -> None:
    assert set(costs.names()) <= set(strategies.names())


@pytest.mark.parametrize("name", strategies.names())
def test_a_cost_tries_what_the_class_allows_and_nothing_else(name: str) -> None:
    kind, cost = strategies[name], cost_of(name)
    for workers in (1, 2, 4):
        variants = cost.variants(workers)
        assert bool(variants) == (workers == 1 or kind.on_workers)
        assert {each["exchange"] for each in variants if "exchange" in each} <= set(kind.exchanges)
        assert all(cost.rehearsed(each) >= 2 for each in variants)
    if workers > 1 and kind.exchanges:
        assert {each["exchange"] for each in variants} == set(kind.exchanges)


def test_exactness_is_that_of_strategy_and_exchange() -> None:
    halo, sampled = cost_of("halo"), cost_of("sampled")
    assert halo.is_exact({"exchange": "exact"})
    assert not halo.is_exact({"exchange": "sampled"})
    assert halo.is_exact({"exchange": {"name": "sampled", "p": 1.0}})
    assert not sampled.is_exact({})
