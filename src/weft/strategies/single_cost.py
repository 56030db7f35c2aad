"""What `single` costs: the whole graph in one process, and no traffic."""

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("single")
class SingleCost(StrategyCost):
    """One process: every row, kept for backward, and nobody to send to."""
