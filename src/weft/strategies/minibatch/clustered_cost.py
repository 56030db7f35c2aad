"""What `clustered` costs: some clusters a step, and the rows between them on workers."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("clustered")
class ClusteredCost(StrategyCost):
    """Clusters of an epoch are drawn as the run will draw them."""

    exact: ClassVar[bool] = False
