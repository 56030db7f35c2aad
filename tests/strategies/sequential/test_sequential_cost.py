"""What a plan tries of `sequential`: parts that come and go, so more than one a worker."""

from weft.strategies.sequential.sequential import Sequential
from weft.strategies.strategy_cost import costs


def test_two_parts_a_worker_are_tried() -> None:
    assert {each["parts"] for each in costs["sequential"].variants(Sequential, 3)} == {6}
