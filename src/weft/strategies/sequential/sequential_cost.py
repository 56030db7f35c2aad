"""What `sequential` costs: the rows of `halo`, a part at a time."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.base import Strategy
from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("sequential")
class SequentialCost(StrategyCost):
    """Two parts are in memory; the next travels while one is worked on."""

    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: one process that holds every part has nothing to gain."""
        return "one process has the whole graph: `single` does the same" if workers == 1 else None

    @classmethod
    def variants(cls, kind: type[Strategy], workers: int) -> list[dict[str, Any]]:
        """Return every exchange with two parts a worker: with one there is nothing to come and go."""
        return [{"parts": 2 * workers, **way} for way in super().variants(kind, workers)]
