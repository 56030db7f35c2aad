"""What `pipeline` costs: known once its layers are timed, which the run itself does."""

from typing import ClassVar

from weft.strategies.strategy_cost import StrategyCost, costs


@costs.add("pipeline")
class PipelineCost(StrategyCost):
    """Stages of layers on workers of their own; who runs which is divided by measured times."""

    untried: ClassVar[str] = "its stages are divided by times that the run itself measures"
