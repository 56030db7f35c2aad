"""What a plan says of `buckets`: it is no way to train a model of layers."""

from weft.strategies.strategy_cost import cost_of


def test_it_is_not_compared_with_models_of_layers() -> None:
    assert "no layers" in (cost_of("buckets").obstacle(2) or "")
