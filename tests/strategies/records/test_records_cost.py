"""What a plan says of `records`: files must be there first."""

from weft.strategies.strategy_cost import costs


def test_it_is_not_tried_without_its_files() -> None:
    assert "weft flatten" in (costs["records"].obstacle({}, 1) or "")
