"""Every strategy has a cost beside it, by its name, and tells by it what a plan tries."""

import pytest

from weft.strategies.base import strategies
from weft.strategies.strategy_cost import StrategyCost, costs


def test_every_strategy_has_a_cost_and_every_cost_a_strategy() -> None:
    assert costs.names() == strategies.names()


@pytest.mark.parametrize("name", strategies.names())
def test_a_cost_stands_in_the_folder_of_its_strategy(name: str) -> None:
    assert costs[name].__module__.rpartition(".")[0] == strategies[name].__module__.rpartition(".")[0]


@pytest.mark.parametrize("name", strategies.names())
def test_a_cost_tries_what_the_class_allows_and_nothing_else(name: str) -> None:
    kind, cost = strategies[name], costs[name]
    assert issubclass(cost, StrategyCost)
    for workers in (1, 2, 4):
        variants = cost.variants(kind, workers)
        assert bool(variants) == (workers == 1 or kind.on_workers)
        assert {each["exchange"] for each in variants if "exchange" in each} <= set(kind.exchanges)
        assert all(cost.rehearsed(each) >= 2 for each in variants)
    if workers > 1 and kind.exchanges:
        assert {each["exchange"] for each in variants} == set(kind.exchanges)


def test_exactness_is_that_of_strategy_and_exchange() -> None:
    halo, sampled = costs["halo"], costs["sampled"]
    assert halo.is_exact({"exchange": "exact"})
    assert not halo.is_exact({"exchange": "sampled"})
    assert halo.is_exact({"exchange": {"name": "sampled", "p": 1.0}})
    assert not sampled.is_exact({})
