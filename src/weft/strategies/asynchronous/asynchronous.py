"""Bounded asynchrony: Thorpe et al., Dorylus: Affordable, Scalable, and Accurate GNN Training, 2021.

Rows of a worker are cut into intervals. Each goes through gather, apply vertex, scatter and apply edge of
every layer, and through their backward, without waiting for the others: what it reads of them may be epochs
old, up to a bound. Weights are versions that never change; backward of an interval uses those of its forward.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch

from weft.config import Range
from weft.errors import RecipeError
from weft.strategies.asynchronous.interval_steps import Form, IntervalSteps
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.halo.halo_parts import HaloParts
from weft.strategies.local import LocalGraph
from weft.strategies.reducer import Summed, reducer_of
from weft.strategies.strategy_cost import StrategyCost, costs
from weft.strategies.tensor_workers.tensor_workers import TensorOptions

INTERVALS = 4
"""That a worker has where nothing is said."""


@strategies.add("asynchronous")
class Asynchronous(Strategy):
    """Train intervals of rows that wait for each other as little as `staleness` epochs allow.

    A worker cuts its rows into `intervals`. `form` deterministic reads rows and weights of exactly
    `staleness` epochs before, so a run gives the same bits twice; 0 waits for this epoch's. `form` free
    reads what is there, as Dorylus does, at most `staleness` epochs old (1 with 0); the order in which it
    read is left in the folder `order` of the run, and `replay` of such a folder gives the same bits again.
    `form` sync ends every layer together and is halo itself. `tensor_workers` processes without state
    multiply rows with weights for each worker, as Dorylus's lambdas do; auto tries some numbers and may keep
    none. `tensor_engine` ray has them be actors of the Ray at `ray_address`, HOST:PORT, or of one that is
    started on this machine. `partitioner` and `parts` are as of halo.
    """

    name: ClassVar[str] = "asynchronous"
    on_workers: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    lends_products: ClassVar[bool] = True

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        form: Form = "deterministic",
        staleness: Annotated[int, Range(least=0)] = 0,
        intervals: Annotated[int, Range(least=1)] | None = None,
        replay: str | None = None,
        tensor_workers: Annotated[int, Range(least=0)] | Literal["auto"] = 0,
        tensor_engine: Literal["processes", "ray"] = "processes",
        ray_address: str | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        layout = HaloParts(self.shared, graph, part_rank)
        if form == "sync":
            self.compose(layout, reducer=Summed(self.group))
            return
        if context.get("autocast") is torch.float16:
            raise RecipeError(
                "train.precision: float16 scales the loss of all intervals by one number that their "
                "gradients settle; use bfloat16 or float32"
            )
        if tensor_workers and context.get("autocast") is not None:
            raise RecipeError(
                "train.precision: tensor workers multiply rows and weights as they are; use float32, or "
                "strategy.tensor_workers = 0"
            )
        reducer = reducer_of(self.group)
        steps = IntervalSteps(
            self.shared,
            layout,
            reducer,
            count=intervals or INTERVALS,
            form=form,
            staleness=staleness,
            replay=None if replay is None else Path(replay),
            folder=context.get("folder"),
            tensors=TensorOptions(tensor_workers, tensor_engine, ray_address),
        )
        self.compose(layout, steps, reducer)

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return both forms that compute what one process does; an interval a worker is one of its calls."""
        return [{"form": "sync"}, {"form": "deterministic", "intervals": 1}]

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that would do nothing, before any data is read."""
        super().check(options)
        form = options.get("form", "deterministic")
        idle = ["staleness", "intervals", "tensor_workers"] if form == "sync" else []
        for key in idle:
            if options.get(key):
                raise RecipeError(
                    f"strategy.{key}: 'sync' ends every layer together; leave it out, or use another form"
                )
        if options.get("tensor_engine", "processes") == "ray":
            if not options.get("tensor_workers"):
                raise RecipeError("strategy.tensor_engine: 'ray' has nothing to place; set tensor_workers")
        elif options.get("ray_address") is not None:
            raise RecipeError("strategy.ray_address: this is of Ray; add tensor_engine = 'ray'")
        if options.get("replay") is not None and form != "free":
            raise RecipeError(
                f"strategy.replay: {form!r} gives the same bits by itself; use form = 'free', or leave it out"
            )


@costs.add("asynchronous")
class AsynchronousCost(StrategyCost):
    """Halo rows as `halo` sends them, while intervals go on; how long nobody waits is not known before."""

    untried: ClassVar[str] = (
        "what it saves is waiting for workers that are slow now and then; traffic is that of halo"
    )
    overlaps: ClassVar[tuple[str, ...]] = ("halo", "gradient")

    def is_exact(self, options: Mapping[str, Any]) -> bool:
        """Return whether nothing that is read is old."""
        return options.get("form", "deterministic") != "free" and not options.get("staleness")
