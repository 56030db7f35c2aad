"""The whole graph in every step, cut by nodes: each rank computes its own rows and is sent those it reads."""

from collections.abc import Mapping, Sequence
from math import lcm
from typing import Annotated, Any, ClassVar, Literal, Unpack

from torch import Tensor

from weft.config import Range
from weft.errors import RecipeError
from weft.exchanges.base import check_exchange, exchanges
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.halo.planned import PlannedParts
from weft.strategies.local import LocalGraph
from weft.strategies.memory.layer_parts import memory_given
from weft.strategies.reducer import Summed
from weft.strategies.strategy_cost import StrategyCost, costs


@strategies.add("halo")
class Halo(Strategy):
    """Train on the whole graph across workers; halo rows travel as the exchange says.

    `partitioner` is a name or a table with its options, `parts` their number (one a worker), `exchange` a
    name or a table: exact, or {name = "sampled", p = 0.1}. A worker may hold several parts. `drift` measures
    the true error of the exchange, every epoch (true) or every so many; `error` has p, change or bits chosen
    by each measurement so that the next is expected below that; single epochs may lie above. With
    `activation = "auto"` and the exchange exact, what backward needs of each layer is kept, made again, or
    put aside (on a GPU in the host's memory, on a CPU in the run's folder): what takes the least time in
    `memory` a worker, beside its part of the graph and the weights; what others sent is kept, and sent once.
    """

    name: ClassVar[str] = "halo"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    on_workers: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    worker_devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "sampled", "stale", "skip", "quantised")
    rows_by_owner: ClassVar[bool] = True
    layout: HaloParts

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        speed: Tensor | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        exchange: str | Mapping[str, Any] = "exact",
        drift: bool | Annotated[int, Range(least=1)] = False,
        error: Annotated[float, Range(above=0)] | None = None,
        activation: Literal["keep", "auto"] = "keep",
        memory: int | str | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        how: dict[str, Any] = {"exchange": exchange, "speed": speed, "drift": int(drift), "error": error}
        room = memory_given(activation, memory, self.device, workers=self.group.processes)
        if room is None:
            layout = HaloParts(self.shared, graph, part_rank, **how)
        else:
            folder = context.get("folder")
            layout = PlannedParts(self.shared, graph, part_rank, **how, memory=room, folder=folder)
        self.compose(layout, reducer=Summed(self.group))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse an exchange that is not allowed here, or a budget that it cannot keep to."""
        super().check(options)
        if options.get("error") is not None:
            _check_budget(*check_exchange(options.get("exchange", "exact")))
        if options.get("activation") == "auto":
            _check_planned(options)


def _check_budget(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a budget on the error of an exchange that leaves nothing to choose."""
    if not exchanges[name].adapts:
        able = ", ".join(sorted(each for each in Halo.exchanges if exchanges[each].adapts))
        raise RecipeError(f"strategy.error: {name!r} has nothing that a budget could choose; use {able}")
    if "auto" in options.values():
        raise RecipeError(
            "strategy.error: 'auto' goes by the links; give a number for the budget to start from"
        )


def _check_planned(options: Mapping[str, Any]) -> None:
    """Refuse to plan what layers keep where they are not sent the same rows in every step."""
    name, _ = check_exchange(options.get("exchange", "exact"))
    if not exchanges[name].as_it_is or options.get("drift"):
        raise RecipeError(
            "strategy.activation: 'auto' gives layers that run again the rows that came before: use the "
            "exchange 'exact', without drift, or activation = 'keep'"
        )


@costs.add("halo")
class HaloCost(StrategyCost):
    """Halo rows travel while a worker sums its local edges."""

    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def period(self, options: Mapping[str, Any]) -> int:
        """Return after how many epochs all repeats itself, the measuring of errors too."""
        return lcm(super().period(options), int(options.get("drift") or 1))
