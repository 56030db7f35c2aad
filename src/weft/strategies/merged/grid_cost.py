"""What `grid` costs: rows gathered in columns of workers, sums merged in rows of them."""

from collections.abc import Mapping
from typing import Any

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("grid")
class GridCost(StrategyCost):
    """Traffic that does not depend on the cut."""

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: one process that holds every part has nothing to gain."""
        return "one process has the whole graph: `single` does the same" if workers == 1 else None
