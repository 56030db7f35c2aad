"""One process, the whole graph in every step. Exact: what every other strategy is compared with."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

from weft.graph.graph import Graph
from weft.layers.stack import Stack
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.device_bytes import offload_bytes
from weft.strategies.memory.layer_parts import memory_given
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
        room = memory_given(activation, memory, self.device)
        if room is None:
            self.compose(Whole(self.shared, graph))
            return
        if activation == "offload":
            self.compose(Whole(self.shared, graph, memory=room))
        else:
            self.compose(PlannedWhole(self.shared, graph, memory=room, folder=context.get("folder")))

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the graph is to lie where the model is: not where chunks of it come and go."""
        return options.get("activation") != "offload"

    @classmethod
    def device_needs(cls, graph: Graph, model: Stack) -> dict[str, int]:
        """Return what chunks of the graph take."""
        return {f"{cls.name} with activation = 'offload'": offload_bytes(graph, model)}
