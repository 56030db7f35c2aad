"""What `sequential` costs: the rows of `halo`, a part at a time."""

from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("sequential")
class SequentialCost(StrategyCost):
    """Two parts are in memory; the next travels while one is worked on."""

    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def variants(self, workers: int) -> list[dict[str, Any]]:
        """Return every exchange with two parts a worker: with one there is nothing to come and go."""
        return [{"parts": 2 * workers, **way} for way in super().variants(workers)]
