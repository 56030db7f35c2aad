"""What `halo` costs: rows of other workers in every layer, as its exchange brings them."""

from collections.abc import Mapping
from math import lcm
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("halo")
class HaloCost(StrategyCost):
    """Halo rows travel while a worker sums its local edges."""

    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def period(self, options: Mapping[str, Any]) -> int:
        """Return after how many epochs all repeats itself, the measuring of errors too."""
        return lcm(super().period(options), int(options.get("drift") or 1))
