"""What `staged` costs: rows of one worker after the other, or blocks along a square grid."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("staged")
class StagedCost(StrategyCost):
    """Least memory of all exact ways on workers."""

    turns: ClassVar[bool] = True
