"""A plan leaves it out, and says why."""

from weft.strategies.strategy_cost import cost_of


def test_a_plan_does_not_try_what_the_clock_decides() -> None:
    cost = cost_of("asynchronous")
    assert "slow now and then" in (cost.obstacle(2) or "")
    assert cost.is_exact({"intervals": 3})
    assert not cost.is_exact({"staleness": 1})
    assert not cost.is_exact({"form": "free"})
