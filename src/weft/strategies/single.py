"""One process, the whole graph in every step. Exact: what every other strategy is compared with."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.sizes import parse_bytes
from weft.stores.cached import free_bytes
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.memory.whole import PlannedWhole
from weft.strategies.whole import Whole


@strategies.add("single")
class Single(Strategy):
    """Train on the whole graph in one process.

    With `activation = "offload"` the graph and the rows between layers stay in the host's memory, and the
    device is given chunks of them: it takes at most `memory`, bytes or words as "8GiB"; by default what is
    free there. With "auto" the graph lies on the device, and what backward needs of each layer is kept, made
    again, or put aside (on a GPU in the host's memory, on a CPU in the run's folder): what takes the least
    time in `memory`, beside the graph and the weights, as a trial of each layer tells.
    """

    name: ClassVar[str] = "single"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    rows_by_owner: ClassVar[bool] = True
    layout: Whole

    def __init__(
        self,
        graph: Graph,
        *,
        activation: Literal["keep", "offload", "auto"] = "keep",
        memory: int | str | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        if activation == "keep":
            if memory is not None:
                raise RecipeError(
                    "strategy.memory: bounds activation = 'offload' and 'auto'; name one, or leave it out"
                )
            self.compose(Whole(self.shared, graph))
            return
        asked = None if memory is None else parse_bytes(memory, "strategy.memory")
        room = int(0.9 * free_bytes(self.device)) if asked is None else asked
        if activation == "offload":
            self.compose(Whole(self.shared, graph, memory=room))
        else:
            self.compose(PlannedWhole(self.shared, graph, memory=room, folder=context.get("folder")))

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the graph is to lie where the model is: not where chunks of it come and go."""
        return options.get("activation") != "offload"
