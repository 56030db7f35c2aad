"""What `records` costs: neighbourhoods that were flattened before, read from files."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("records")
class RecordsCost(StrategyCost):
    """Files are made once, by `weft flatten`."""

    untried: ClassVar[str] = "it reads neighbourhoods that `weft flatten` has to make first"
