"""What `sampled` costs: neighbourhoods of batches, and their features from other workers."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("sampled")
class SampledCost(StrategyCost):
    """Draws are functions of seed and epoch: a rehearsed epoch draws what the run will."""

    exact: ClassVar[bool] = False
