"""What a plan tries of `grid`: every arrangement of the workers, with every exchange."""

from weft.strategies.merged.grid import Grid
from weft.strategies.strategy_cost import costs


def test_every_arrangement_is_tried() -> None:
    found = {(each["rows"], each["columns"]) for each in costs["grid"].variants(Grid, 4)}
    assert found == {(4, 1), (2, 2), (1, 4)}
