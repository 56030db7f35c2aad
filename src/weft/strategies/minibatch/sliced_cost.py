"""What `sliced` costs: partial products of columns instead of rows (P3)."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("sliced")
class SlicedCost(StrategyCost):
    """Pays where features are wider than the first hidden layer."""

    exact: ClassVar[bool] = False
