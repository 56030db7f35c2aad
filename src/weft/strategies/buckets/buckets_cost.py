"""What `buckets` costs: partitions of learned rows that come and go."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("buckets")
class BucketsCost(StrategyCost):
    """There is no model of layers to compare with others."""

    exact: ClassVar[bool] = False

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: it learns something else."""
        return "it learns a row for each node and has no layers: another model than this one"
