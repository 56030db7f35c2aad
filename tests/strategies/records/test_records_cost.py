"""What a plan says of `records`: files must be there first."""

from weft.strategies.strategy_cost import cost_of


def test_it_is_not_tried_without_its_files() -> None:
    assert "weft flatten" in (cost_of("records").obstacle(1) or "")
