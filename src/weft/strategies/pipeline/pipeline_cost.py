"""What `pipeline` costs: known once its layers are timed, which the run itself does."""

from collections.abc import Mapping
from typing import Any, ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("pipeline")
class PipelineCost(StrategyCost):
    """Stages of layers on workers of their own; who runs which is divided by measured times."""

    exact: ClassVar[bool] = False

    @classmethod
    def obstacle(cls, options: Mapping[str, Any], workers: int) -> str | None:
        """Return why a plan does not try this: the run decides by the clock what travels."""
        return "its stages are divided by times that the run itself measures"
