"""What `buckets` costs: partitions of learned rows that come and go."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("buckets")
class BucketsCost(StrategyCost):
    """There is no model of layers to compare with others."""

    untried: ClassVar[str] = "it learns a row for each node and has no layers: another model than this one"
