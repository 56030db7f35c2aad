"""Which cases are proved: what the registries hold, and a cover in which any two choices meet."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar

import pytest

from weft.exchanges.base import Exchange, exchanges
from weft.layers.base import layers
from weft.strategies.base import Strategy, strategies
from weft.train.proof import Case, Pair, all_cases, cover, legal_pairs
from weft.train.proof.cases import MODELS, TYPES
from weft.train.proof.graphs import GRAPHS
from weft.train.proof.tasks import TASKS


def test_pairs_come_from_the_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Exchange):
        exact_at: ClassVar[Mapping[str, Any]] = {"often": 1}
        also_exact_at: ClassVar[tuple[Mapping[str, Any], ...]] = ({"seldom": 0},)

        def __init__(self, *given: Any, often: int = 1, seldom: int = 0) -> None:
            super().__init__(*given)

    class Never(Exchange):
        exact_at: ClassVar[Any] = None

    class Square(Strategy):
        name = "square"
        on_workers = True
        exchanges = ("exact", "twice", "never", "not there yet")

        def __init__(self, graph: Any, *, side: int = 1, exchange: Any = "exact", **rest: Any) -> None:
            super().__init__(graph, **rest)

        @classmethod
        def layouts(cls, workers: int) -> list[dict[str, Any]]:
            return [{"side": side} for side in range(1, workers + 1)]

    exchanges.names(), strategies.names()
    monkeypatch.setitem(exchanges._entries, "twice", Twice)
    monkeypatch.setitem(exchanges._entries, "never", Never)
    monkeypatch.setitem(strategies._entries, "square", Square)
    told = [str(pair) for pair in legal_pairs(2, names=["square"])]
    assert told == [
        f"square side={side} {exchange}"
        for side in (1, 2)
        for exchange in ("exact", "twice often=1", "twice seldom=0")
    ]


def test_every_exchange_of_halo_that_is_there_is_proved() -> None:
    told = {dict(pair.options)["exchange"]["name"] for pair in legal_pairs(2, names=["halo"])}
    from weft.strategies.halo.halo import Halo

    assert told == {name for name in Halo.exchanges if name in exchanges}


def test_every_layer_is_proved() -> None:
    assert {layer for layer, _ in MODELS.values()} == set(layers.names())


def test_a_strategy_is_proved_on_the_targets_that_it_takes() -> None:
    cases = all_cases([Pair("halo", {}), Pair("staged", {})])
    told = {name: {case.task for case in cases if case.pair.strategy == name} for name in ("halo", "staged")}
    assert told["halo"] == {*TASKS}
    assert told["staged"] == {"node_classification", "node_regression"}


def test_only_what_is_expected_may_be_refused() -> None:
    pair = Pair("halo", {})
    refusal = "GINE needs edge features but the graph has no edge_attr; use 'gin'"
    assert Case(pair, "gine", "sparse", "float32").expects(refusal)
    assert not Case(pair, "gine", "hub", "float32").expects(refusal)
    assert not Case(pair, "gin", "sparse", "float32").expects(refusal)
    assert not Case(pair, "gine", "sparse", "float32").expects("halo cannot do this")


@pytest.mark.parametrize("count", [1, 3, 12])
def test_in_a_cover_any_two_choices_meet(count: int) -> None:
    pairs = [Pair("halo", {"number": number}) for number in range(count)]
    cases = cover(pairs)
    choices = [[str(pair) for pair in pairs], list(MODELS), list(GRAPHS), list(TYPES), list(TASKS)]
    for (first, one), (second, other) in combinations(enumerate(choices), 2):
        met = {(told[first], told[second]) for told in map(_told, cases)}
        assert met == {(a, b) for a in one for b in other}
    assert len(cases) < len(all_cases(pairs)) / 2 + 60


def _told(case: Any) -> tuple[str, ...]:
    return str(case.pair), case.model, case.graph, case.dtype, case.task
