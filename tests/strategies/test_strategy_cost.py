"""What costs share: options that belong to a strategy, and how long a rehearsal must be."""

from weft.strategies.base import strategies
from weft.strategies.strategy_cost import StrategyCost, known_options


def test_options_of_other_strategies_are_left_out() -> None:
    section = {"name": "sampled", "fanout": [2], "parts": 4}
    assert known_options(strategies["halo"], section) == {"parts": 4}


def test_a_rehearsal_sees_a_whole_period_of_an_exchange() -> None:
    assert StrategyCost.rehearsed({}) == 2
    assert StrategyCost.rehearsed({"exchange": "exact"}) == 2
    assert StrategyCost.rehearsed({"exchange": {"name": "delayed", "r": 3}}) == 4
    assert StrategyCost.rehearsed({"exchange": "delayed"}) == 6  # by its default, five epochs
    assert StrategyCost.rehearsed({"exchange": "skip"}) == 5
