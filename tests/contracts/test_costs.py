"""Every strategy tells a plan what it may try."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.exchanges.accuracy import AccuracyCost
from weft.exchanges.base import exchanges
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


def approximations() -> Iterator[tuple[str, Any]]:
    """Give everything whose results are not those of one process on the whole graph."""
    for name in exchanges.names():
        if name != "exact":
            yield f"exchange {name}", exchanges[name]
    for name in strategies.names():
        if not cost_of(name).exact:
            yield f"strategy {name}", strategies[name]


def _shown(cost: AccuracyCost) -> str:
    """Return the points as a table has them: as they are, or by how much they are below."""
    points = cost.points if cost.case.startswith("paired") else -cost.points
    return f"{points:+.2f} ± {cost.error:.2f}"


@pytest.mark.parametrize(("name", "kind"), list(approximations()))
def test_an_approximation_names_what_it_was_measured_to_cost(name: str, kind: Any) -> None:
    assert "score_costs" in vars(kind), f"{name}: measured costs stand on the class, or NOT_MEASURED"
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    for each in kind.score_costs:
        table = json.loads((results / f"{each.case}.json").read_text(encoding="utf-8"))["table"]
        assert each.case in (results / "README.md").read_text(encoding="utf-8")
        assert any(_shown(each) in row for row in table), f"{name}: {each} is not in {each.case}"


def test_costs_are_those_of_the_options_where_they_were_measured() -> None:
    halo = cost_of("halo")
    assert halo.score_costs({"exchange": "exact"}) == ()
    assert halo.score_costs({"exchange": {"name": "delayed", "r": 2}}) == tuple(
        each for each in exchanges["delayed"].score_costs if each.options == {"r": 2}
    )
    assert {each.options["r"] for each in halo.score_costs({"exchange": "delayed"})} == {5}  # by default
    others = halo.score_costs({"exchange": {"name": "quantised", "bits": 2}})
    assert others == exchanges["quantised"].score_costs, "with other bits: told with those that were measured"
    assert cost_of("clustered").score_costs({}) == ()
