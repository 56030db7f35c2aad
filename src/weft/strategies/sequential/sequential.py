"""The whole graph in every step, cut by nodes, with the remote rows of one part at a time.

Sequential aggregation and rematerialisation: a rank fetches the rows it reads part by part, the next part
while it works on one, and lets them go. Sums and means need no rows in backward; attention and largest values
fetch them again, and so do messages whose gradients read sources, as their programs say. Peak memory is that
of the own rows and two parts, whatever the halo.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Unpack

from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.errors import GraphError
from weft.exchanges.base import make_exchange
from weft.exchanges.exact import Exact
from weft.graph.message.block import Block
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.layout import PartsLayout
from weft.strategies.local import LocalGraph
from weft.strategies.reducer import Summed
from weft.strategies.sequential.block import SequentialBlock
from weft.strategies.sequential.parts import TRAINING, make_rounds
from weft.strategies.shared import Shared
from weft.strategies.strategy_cost import StrategyCost, costs


@strategies.add("sequential")
class Sequential(Strategy):
    """Train on the whole graph, the rows of other parts fetched and let go one part after the other.

    `partitioner` is a name or a table with its options, `parts` their number (one a worker), `exchange` a
    name or a table: exact, or {name = "quantised", bits = 8}. Also for one worker with many parts.
    """

    name: ClassVar[str] = "sequential"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    on_workers: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "quantised")
    rows_by_owner: ClassVar[bool] = True
    layout: "SequentialParts"

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        exchange: str | Mapping[str, Any] = "exact",
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        layout = SequentialParts(self.shared, graph, part_rank, exchange=exchange)
        self.compose(layout, reducer=Summed(self.group))


class SequentialParts(PartsLayout):
    """Own rows, and those of other parts for as long as their edges are worked on."""

    def __init__(
        self,
        shared: Shared,
        graph: LocalGraph,
        part_rank: Sequence[int] | None,
        *,
        exchange: str | Mapping[str, Any],
    ) -> None:
        super().__init__(shared, graph)
        group, clock = shared.group, shared.clock
        if graph.shard.cuts != "nodes":
            raise GraphError("sequential needs parts of nodes; this partition cuts otherwise: make another")
        plan = HaloPlan.make(graph.home, group, part_rank)
        rounds = make_rounds(graph.home, plan, group, clock, exchange=exchange, part_rank=part_rank)
        # What asks for all source rows at once is given them by these two.
        self._whole = make_exchange(exchange, plan, group, clock)
        self._exact = Exact(plan, group, clock)
        self._exact.kind = "evaluate"
        self.exchanges_used = [self._whole, *(one.exchange for one in rounds)]
        self.block = SequentialBlock(graph.shard, self._exact, group, rounds, clock=clock)
        self.mark_constant(self.block)

    def training_block(self) -> Block:
        """Return the block of the step."""
        for exchange in self.exchanges_used:
            exchange.begin_step()
        return self._begun(TRAINING, self._whole)

    def exact_block(self) -> Block:
        """Return the block with every row as it is."""
        self._exact.begin_step()
        return self._begun("evaluate", self._exact)

    def end_step(self) -> None:
        """Let go of the rows of the step."""
        self.block.forget()
        for exchange in self.exchanges_used:
            exchange.end_step()

    def _begun(self, kind: str, exchange: Any) -> SequentialBlock:
        self.block.forget()
        self.block.exchange = exchange
        self.block.begin(kind)
        return self.block


@costs.add("sequential")
class SequentialCost(StrategyCost):
    """Two parts are in memory; the next travels while one is worked on."""

    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def variants(self, workers: int) -> list[dict[str, Any]]:
        """Return every exchange with two parts a worker: with one there is nothing to come and go."""
        return [{"parts": 2 * workers, **way} for way in super().variants(workers)]
