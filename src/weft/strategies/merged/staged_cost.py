"""What `staged` costs: rows of one worker after the other, or blocks along a square grid."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("staged")
class StagedCost(StrategyCost):
    """Least memory of all exact ways on workers."""

    turns: ClassVar[bool] = True

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: one process that holds every part has nothing to gain."""
        return "one process has the whole graph: `single` does the same" if workers == 1 else None
