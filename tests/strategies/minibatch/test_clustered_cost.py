"""What a plan tries of `clustered`: batches of clusters, not all of them together."""

from weft.strategies.minibatch.clustered import Clustered
from weft.strategies.strategy_cost import costs


def test_batches_are_tried_and_not_exact() -> None:
    assert costs["clustered"].variants(Clustered, 2) == [{}]
    assert not costs["clustered"].is_exact({})
