"""What `records` costs: neighbourhoods that were flattened before, read from files."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("records")
class RecordsCost(StrategyCost):
    """Files are made once, by `weft flatten`."""

    exact: ClassVar[bool] = False

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: what it reads must be made first."""
        return "it reads neighbourhoods that `weft flatten` has to make first"
