"""The whole graph in every step, cut by edges: nodes are split, their partial results merged (DistGNN, 2021).

Every replica of a split node holds the node's row; results over the edges of each part go to the root of the
node and the whole returns. `exact` does so in every layer of every step (cd-0), `delayed` for a share of the
nodes an epoch (cd-r). With `none` (0c) replicas go by the edges and degrees of their part alone, also in the
first layer. Only roots count in the loss, in batch norm and in evaluation, which is exact.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Unpack

from torch import Tensor

from weft.config import Range
from weft.errors import GraphError, RecipeError
from weft.exchanges.base import Options, check_exchange, exchanges, make_exchange
from weft.exchanges.delayed import Delayed
from weft.graph.message.block import Block
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.layout import PartsLayout
from weft.strategies.local import LocalGraph
from weft.strategies.merged.delayed_merge import DelayedMerge
from weft.strategies.merged.vertex_cut_block import LocalBlock, ReplicaMerge, Replicas, VertexCutBlock
from weft.strategies.reducer import Summed
from weft.strategies.shared import Shared


@strategies.add("vertex_cut")
class VertexCut(Strategy):
    """Train on the whole graph across workers that hold parts of the edges.

    `exchange` is exact, {name = "delayed", r = 5} or none. `backward` "local" exchanges no gradients between
    replicas, as the published system does; "exact" is the adjoint of the forward pass.
    """

    name: ClassVar[str] = "vertex_cut"
    on_workers: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    cuts: ClassVar[str] = "edges"
    partitioner: ClassVar[str] = "libra"
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "delayed", "none")
    layout: "VertexCutParts"

    def __init__(
        self,
        graph: LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "libra",
        parts: Annotated[int, Range(least=1)] | None = None,
        exchange: str | Mapping[str, Any] = "exact",
        backward: Literal["exact", "local"] = "exact",
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        layout = VertexCutParts(self.shared, graph, exchange=exchange, backward=backward)
        self.compose(layout, reducer=Summed(self.group, graph.owned))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse an exchange that is not allowed here, and a backward pass that it does not have."""
        super().check(options)
        name, _ = check_exchange(options.get("exchange", "exact"))
        if options.get("backward") == "local" and exchanges[name].parts_alone:
            raise RecipeError(
                f"strategy.backward: with the exchange {name!r} gradients are not exchanged anyway; leave it "
                "out"
            )


class VertexCutParts(PartsLayout):
    """Edges, and a replica of each node at either end of one; the root among replicas counts."""

    def __init__(
        self, shared: Shared, graph: LocalGraph, *, exchange: str | Mapping[str, Any], backward: str
    ) -> None:
        super().__init__(shared, graph)
        shard, group, clock = graph.shard, shared.group, shared.clock
        if shard.cuts != "edges":
            raise GraphError("vertex_cut needs parts of edges; this partition is of nodes: use 'libra'")
        self._replicas = Replicas(shard, group)
        self.merge = self._merging(exchange, ("reduce", "broadcast"), backward)
        self._exact = self._merging("exact", ("evaluate", "evaluate"), backward)
        self.block = VertexCutBlock(shard, self._exact, group=group, clock=clock)
        alone = exchanges[check_exchange(exchange)[0]].parts_alone
        self._alone = LocalBlock(shard, clock=clock) if alone else None
        self.mark_constant(*(block for block in (self.block, self._alone) if block is not None))

    def training_block(self) -> Block:
        """Return the block, merging as the exchange says."""
        self.merge.begin_step()
        self.block.merge = self.merge
        return self.block if self._alone is None else self._alone

    def exact_block(self) -> Block:
        """Return the block, merging exactly."""
        self._exact.begin_step()
        self.block.merge = self._exact
        return self.block

    def end_step(self) -> None:
        """End the step of both exchanges."""
        self.merge.end_step()

    def state(self) -> dict[str, Tensor]:
        """Return the state of both exchanges, with nothing left under way."""
        tensors: dict[str, Tensor] = {}
        for name, exchange in self._exchanges():
            exchange.drain()
            tensors |= {f"{name}.{key}": value for key, value in exchange.state().items()}
        return tensors

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Give it back to them."""
        for name, exchange in self._exchanges():
            own = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
            exchange.load_state({key.removeprefix(f"{name}."): value for key, value in own.items()})

    def _exchanges(self) -> list[tuple[str, Any]]:
        return [("collect", self.merge.collect), ("spread", self.merge.spread)]

    def _merging(self, options: Options, kinds: tuple[str, str], backward: str) -> ReplicaMerge:
        replicas = self._replicas
        collect = make_exchange(options, replicas.plan.reversed(), self.shared.group, self.shared.clock)
        late = isinstance(collect, Delayed) and collect.r > 0
        out = replicas.to_each_leaf() if late else replicas.plan
        spread = make_exchange(options, out, self.shared.group, self.shared.clock)
        collect.kind, spread.kind = kinds
        if late and isinstance(collect, Delayed) and isinstance(spread, Delayed):
            return DelayedMerge(replicas, spread, collect, backward=backward)
        return ReplicaMerge(replicas, spread, collect, backward=backward)
