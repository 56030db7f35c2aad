"""The whole graph in every step, cut by nodes, with the remote rows of one part at a time.

Sequential aggregation and rematerialisation: a rank fetches the rows it reads part by part, the next part
while it works on one, and lets them go. Sums and means need no rows in backward; attention, largest values
and messages fetch them again. Peak memory is that of the own rows and two parts, whatever the halo.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Unpack

from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.errors import GraphError
from weft.exchanges.base import make_exchange
from weft.exchanges.exact import Exact
from weft.graph.message.block import Block
from weft.strategies.base import strategies
from weft.strategies.distributed import Distributed, GivenToRanks
from weft.strategies.local import LocalGraph
from weft.strategies.sequential.block import SequentialBlock
from weft.strategies.sequential.parts import TRAINING, make_rounds


@strategies.add("sequential")
class Sequential(Distributed):
    """Train on the whole graph, the rows of other parts fetched and let go one part after the other.

    `partitioner` is a name or a table with its options, `parts` their number (one a worker), `exchange` a
    name or a table: exact, or {name = "quantised", bits = 8}. Also for one worker with many parts.
    """

    name: ClassVar[str] = "sequential"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "quantised")

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        exchange: str | Mapping[str, Any] = "exact",
        **given: Unpack[GivenToRanks],
    ) -> None:
        super().__init__(graph, **given)
        shard = graph.shard
        if shard.cuts != "nodes":
            raise GraphError("sequential needs parts of nodes; this partition cuts otherwise: make another")
        plan = HaloPlan.make(graph.home, self.group, part_rank)
        rounds = make_rounds(graph.home, plan, self.group, self.clock, exchange=exchange, part_rank=part_rank)
        # What asks for all source rows at once is given them by these two.
        self._whole = make_exchange(exchange, plan, self.group, self.clock)
        self._exact = Exact(plan, self.group, self.clock)
        self._exact.kind = "evaluate"
        self.exchanges_used = [self._whole, *(one.exchange for one in rounds)]
        self.block = SequentialBlock(shard, self._exact, self.group, rounds, clock=self.clock)
        if len(graph.node_types) == 1 and graph.x is not None:
            self.block.mark_constant(graph.x)

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
