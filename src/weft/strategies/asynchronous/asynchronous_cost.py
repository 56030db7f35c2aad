"""What `asynchronous` costs: the traffic of halo; what waiting it saves, the clock of a run alone can say."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("asynchronous")
class AsynchronousCost(StrategyCost):
    """Halo rows as `halo` sends them, while intervals go on; how long nobody waits is not known before."""

    untried: ClassVar[str] = (
        "what it saves is waiting for workers that are slow now and then; traffic is that of halo"
    )
    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def is_exact(self, options: Mapping[str, Any]) -> bool:
        """Return whether nothing that is read is old."""
        return options.get("form", "deterministic") != "free" and not options.get("staleness")
