"""What a plan says of `pipeline`: the run divides its stages by the clock."""

from weft.strategies.strategy_cost import cost_of


def test_it_is_not_planned_before_its_layers_are_timed() -> None:
    assert "run itself measures" in (cost_of("pipeline").obstacle(2) or "")
