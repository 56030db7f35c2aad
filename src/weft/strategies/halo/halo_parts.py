"""What a worker of `halo` holds: own rows, and those of others that an exchange brings."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from weft.comm.plan import HaloPlan
from weft.comm.probe import measure
from weft.errors import GraphError
from weft.exchanges.base import make_exchange
from weft.exchanges.drift import Drift, Meter
from weft.exchanges.exact import Exact
from weft.graph.message.block import Block
from weft.strategies.halo.block import HaloBlock
from weft.strategies.halo.drawn import DrawnBlock
from weft.strategies.layout import PartsLayout
from weft.strategies.local import LocalGraph
from weft.strategies.shared import Shared


class HaloParts(PartsLayout):
    """Own rows, and those of others that edges into them read, which an exchange brings."""

    def __init__(
        self,
        shared: Shared,
        graph: LocalGraph,
        part_rank: Sequence[int] | None = None,
        *,
        exchange: str | Mapping[str, Any] = "exact",
        speed: Tensor | None = None,
        drift: int = 0,
        error: float | None = None,
    ) -> None:
        super().__init__(shared, graph)
        shard, group, clock = graph.shard, shared.group, shared.clock
        if shard.cuts != "nodes":
            raise GraphError(
                f"{shared.name} needs parts of nodes; this partition cuts edges: use another partitioner"
            )
        plan = HaloPlan.make(graph.home, group, part_rank).to(shard.node_ids.device)
        self.exchange = make_exchange(exchange, plan, group, clock)
        if self.exchange.wants_speed:
            self.exchange.tune(measure(group) if speed is None else speed)
        if error is not None:
            self.exchange.budget(error)
        self._every = drift or int(error is not None)
        self._meter = Meter(shard, plan, group, clock) if self._every else None
        self._error, self._drift = error, Drift([], [])
        self._exact = Exact(plan, group, clock)
        self._exact.kind = "evaluate"
        self.whole = HaloBlock(shard, self._exact, group, clock=clock)
        self._block = self.whole
        self.mark_constant(self.whole)

    def training_block(self) -> Block:
        """Return the block of the step: where rows are sampled, one without those that are not kept."""
        self.exchange.begin_step()
        due = self._every and int(self.shared.clock[1]) % self._every == 0
        self.exchange.meter = self._meter if due else None
        if self.exchange.meter is not None:
            self.exchange.meter.begin()
        if self.exchange.kept is None:
            self._block = self.whole
            self.whole.exchange = self.exchange
        else:
            self._block = DrawnBlock(self.whole, self.exchange)
        return self._block

    def exact_block(self) -> HaloBlock:
        """Return the block with every halo row, exchanged exactly."""
        self._exact.begin_step()
        self.whole.forget()
        self.whole.exchange = self._exact
        return self.whole

    def end_forward(self) -> None:
        """Let go of the rows of others, which backward does not read."""
        self._block.forget()

    def end_step(self) -> None:
        """End the step of the exchange, and measure it where that is due."""
        self._block.forget()
        self._block = self.whole
        self.exchange.end_step()
        self._drift = Drift([], [])
        if self.exchange.meter is not None:
            self._drift = self.exchange.meter.finish()
            self.exchange.adapt(self._drift)

    def exchange_errors(self) -> dict[int, float]:
        """Return the errors that were measured in the last epoch."""
        return dict(enumerate(self._drift.errors))

    def exchange_settings(self) -> dict[str, Any]:
        """Return p, change or bits, where a budget or the speed of links chooses them."""
        chosen = self._error is not None or self.exchange.wants_speed
        return self.exchange.settings() if chosen else {}

    def state(self) -> dict[str, Tensor]:
        """Return the exchange's, with nothing left under way."""
        self.exchange.drain()
        return {**self.exchange.state(), **self.exchange.tuned()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Give it back to the exchange."""
        self.exchange.load_tuned(state)
        tuned = self.exchange.tuned()
        self.exchange.load_state({name: value for name, value in state.items() if name not in tuned})
