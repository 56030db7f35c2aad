"""What `vertex_cut` costs: sums of replicas to the root of a node, and results back."""

from collections.abc import Mapping
from typing import Any

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("vertex_cut")
class VertexCutCost(StrategyCost):
    """Traffic by replicas instead of halo rows."""

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: one process that holds every part has nothing to gain."""
        return "one process has the whole graph: `single` does the same" if workers == 1 else None
