"""What a plan tries of `vertex_cut`: exact, delayed for a whole period, and none, which is never exact."""

from weft.strategies.strategy_cost import costs


def test_a_delayed_exchange_is_rehearsed_for_its_period_and_none_is_not_exact() -> None:
    cost = costs["vertex_cut"]
    assert cost.rehearsed({"exchange": {"name": "delayed", "r": 3}}) == 4
    assert cost.is_exact({"exchange": {"name": "delayed", "r": 0}})
    assert not cost.is_exact({"exchange": "none"})
