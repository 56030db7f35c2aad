"""What `saint` costs: random subgraphs, and the rows between them on workers."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("saint")
class SaintCost(StrategyCost):
    """Subgraphs of an epoch are drawn as the run will draw them."""

    exact: ClassVar[bool] = False
