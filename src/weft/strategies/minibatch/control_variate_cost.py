"""What `control_variate` costs: few drawn neighbours, and histories of every node and layer."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("control_variate")
class ControlVariateCost(StrategyCost):
    """Histories lie with the owners of nodes."""

    exact: ClassVar[bool] = False
