"""A graph that one process holds: in its memory, on a GPU, or on the host while a GPU computes."""

from collections.abc import Mapping

from torch import Tensor, nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.source import RowSource
from weft.sizes import shown
from weft.strategies.layout import Layout
from weft.strategies.offload.offload import Offload, checked, needed_bytes
from weft.strategies.placement import Nearby
from weft.strategies.shared import Shared


class Whole(Layout):
    """The graph itself.

    With `memory` the graph and the rows between layers stay on the host, and the device is given chunks, of
    at most so many bytes. With `batches` the graph stays there too, and a GPU is brought batches of it.
    """

    graph: Graph

    def __init__(
        self, shared: Shared, graph: Graph, *, memory: int | None = None, batches: bool = False
    ) -> None:
        super().__init__(shared)
        self.graph, self._batches = graph, batches
        self._nearby: Nearby | None = None
        self.offload: Offload | None = None
        if memory is not None:
            clock, autocast = shared.clock, shared.call.autocast
            self.offload = Offload(graph, shared.device, memory=memory, clock=clock, autocast=autocast)

    @property
    def nearby(self) -> Nearby | None:
        """The graph as a GPU reads batches of it; None where the model is on the CPU, or the graph there."""
        if self._nearby is None and self._batches and self.shared.device.type == "cuda":
            self._nearby = Nearby(self.graph, self.shared.device)
        return self._nearby

    def forget_nearby(self) -> None:
        """Let go of what a GPU has of the graph: its features lie elsewhere now."""
        self._nearby = None

    @property
    def lends_rows(self) -> bool:
        """Whether they may: chunks are run again in backward, for gradients of parameters alone."""
        return self.offload is None

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be offloaded, or not in the memory given."""
        if self.offload is None:
            return
        if self.graph.x is None:
            raise RecipeError(
                "strategy.activation: 'offload' brings features in chunks, and the graph has none; use 'keep'"
            )
        least = needed_bytes(self.offload, checked(model), self.offload.device)
        if self.offload.memory < least:
            raise RecipeError(
                f"strategy.memory: training in chunks takes at least {shown(least)}, "
                f"got {shown(self.offload.memory)}; give more, or a narrower model"
            )

    def training_block(self) -> Block:
        """Return the block of the graph."""
        return self.graph.block(self.shared.clock)

    def exact_block(self) -> Block:
        """Return the block of the graph."""
        return self.graph.block(self.shared.clock)

    def release(self, block: Block) -> None:
        """Take the clock off the block, which is the graph's, and the graph outlives this run."""
        block.clock = None

    def training_rows(self, model: nn.Module) -> Tensor:
        """Return the model's rows of all nodes."""
        if self.offload is None:
            return super().training_rows(model)
        return self.shared.call.checked(self.offload(model), self.graph.num_nodes)

    def exact_rows(self, model: nn.Module) -> Tensor:
        """Return the model's rows of all nodes, in the host's memory where the graph is there alone."""
        call, infer = self.shared.call, self.shared.infer
        if self.offload is not None:
            return call.checked(self.offload(model), self.graph.num_nodes)
        if self.nearby is not None:
            return call.checked(self.nearby.outputs(model, self.shared.clock, call.autocast))
        if infer is not None and self.in_store:
            return self._among_all(infer(model, self.graph))
        return super().exact_rows(model)

    @property
    def in_store(self) -> bool:
        """Whether features are read row by row, so that no pass can take all of them."""
        x = self.graph.x
        return any(isinstance(each, RowSource) for each in (x.values() if isinstance(x, Mapping) else [x]))

    def global_ids(self, rows: Tensor) -> Tensor:
        """Return the rows: they are numbered as the nodes are."""
        return rows

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes, where the model is."""
        return h[ids.to(h.device)].to(self.shared.device)

    def gathered(self, rows: Tensor) -> Tensor:
        """Return the rows: all are here."""
        return rows

    def _among_all(self, rows: Tensor) -> Tensor:
        """Return rows of the target type among those of all nodes, whose others nobody reads."""
        if len(self.graph.node_types) == 1:
            return rows
        h = rows.new_zeros(self.graph.num_nodes, rows.shape[1])
        h[self.graph.target_rows] = rows
        return h
