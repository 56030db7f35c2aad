"""What a plan tries of `sequential`: parts that come and go, so more than one a worker."""

from weft.strategies.strategy_cost import cost_of


def test_two_parts_a_worker_are_tried() -> None:
    assert {each["parts"] for each in cost_of("sequential").variants(3)} == {6}
