"""What a plan tries of `single`: one process, and never more."""

from weft.strategies.single import Single
from weft.strategies.strategy_cost import costs


def test_it_is_tried_in_one_process_alone() -> None:
    assert costs["single"].variants(Single, 1) == [{}]
    assert costs["single"].variants(Single, 2) == []
    assert costs["single"].is_exact({})
