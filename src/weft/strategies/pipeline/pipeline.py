"""Layers in stages on several workers: GPipe (Huang et al., 2019), PipeDream (Narayanan et al., 2019)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

from weft.config import Range
from weft.errors import RecipeError
from weft.exchanges.accuracy import NOT_MEASURED, AccuracyCost
from weft.graph.parts.shard import Shard
from weft.samplers.base import samplers
from weft.samplers.workers.partitioned import on_workers
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import PartSource
from weft.strategies.minibatch.fanouts import Fanouts, by_hop, check_fanouts
from weft.strategies.minibatch.neighbours import DrawSettings
from weft.strategies.minibatch.sampled import check_sampler
from weft.strategies.pipeline.batches import StagedBatches, StageFlow
from weft.strategies.pipeline.growth import Growth
from weft.strategies.pipeline.plan import StagePlan
from weft.strategies.pipeline.planner import PlanName
from weft.strategies.pipeline.schedules import ScheduleName
from weft.strategies.pipeline.versions import VersionsName
from weft.strategies.pipeline.weights import StageWeights
from weft.strategies.strategy_cost import StrategyCost, costs

_MICRO = 4


@strategies.add("pipeline")
class Pipeline(Strategy):
    """Train a deep model in stages of layers, each on workers of its own, on batches of neighbourhoods.

    `stages` is their number, the layers of each, or auto, planned from measured times. `replicas` workers run
    each stage, one number or one for each; by default as many as there are. `plan` says how auto divides:
    pipedream, whose stages may have different replicas, or hydrozoa, D x M. `schedule` gpipe sends
    `micro_batches` shares of a batch through the stages and updates once, so a step is that of one process;
    1f1b updates after each batch, while others are in flight: backward uses the weights of forward, by
    `versions` stash each stage's newest, by vertical those of the first stage. `recompute` runs forward again
    in backward instead of keeping rows. `fanout`, `batch_size`, `sampler` and `prepare` are as of sampled;
    `grow`, {every = 10, factor = 2.0, most = 8192}, has batches grow with epochs; {patience = 5}, after so
    many without a smaller loss. Each stage draws its own blocks from the whole graph; rows and their
    gradients travel alone. Evaluation is exact.
    """

    name: ClassVar[str] = "pipeline"
    on_workers: ClassVar[bool] = True
    elastic: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    draws_from_whole: ClassVar[bool] = True
    batching: StagedBatches

    def __init__(
        self,
        graph: LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        whole: Callable[[bool], Shard] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        stages: Annotated[int, Range(least=1)] | Sequence[int] | Literal["auto"] = "auto",
        replicas: Annotated[int, Range(least=1)] | Sequence[int] | None = None,
        plan: PlanName | None = None,
        schedule: ScheduleName = "gpipe",
        micro_batches: Annotated[int, Range(least=1)] | None = None,
        versions: VersionsName | None = None,
        recompute: bool = False,
        fanout: Fanouts | None = None,
        batch_size: Annotated[int, Range(least=1)] = 1024,
        sampler: str | Mapping[str, Any] = "neighbor",
        grow: Mapping[str, Any] | None = None,
        prepare: Annotated[int, Range(least=0)] = 1,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        if context.get("autocast") is not None:
            raise RecipeError("train.precision: stages hand each other float32 or float64; use one of them")
        kind, options = check_sampler(sampler)
        drawing = DrawSettings(kind, {"seed": int(self.clock[0]), **options}, batch_size, prepare)
        layout = PartSource(self.shared, graph, None, part_rank).layout
        flow = StageFlow(schedule, micro_batches or _MICRO, versions or "stash", recompute)
        asked = StagePlan(
            self.group,
            stages,
            replicas,
            plan,
            flow.micro_batches,
            vertical=versions == "vertical",
            folder=context.get("folder"),
        )
        batching = StagedBatches(
            self.shared,
            layout,
            asked,
            flow,
            drawing=drawing,
            fanout=by_hop(fanout, graph.edge_types, "strategy.fanout"),
            growth=Growth.of(grow),
            whole=whole or (lambda features: graph.home),
        )
        self.compose(layout, batching, StageWeights(self.group, asked))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that cannot be, or that would do nothing, before any data is read."""
        super().check(options)
        name, _ = check_sampler(options.get("sampler", "neighbor"))
        if not samplers[name].on_workers:
            raise RecipeError(f"strategy.{on_workers(name)}")
        check_fanouts(options.get("fanout"), "strategy.fanout")
        Growth.of(options.get("grow"))
        for key in ("stages", "replicas"):
            _check_counts(options.get(key), key)
        flows = options.get("schedule") == "1f1b"
        idle = [("micro_batches", "updates after each batch; set batch_size")] if flows else []
        idle += [] if flows else [("versions", "has one version of the weights; use schedule = '1f1b'")]
        for key, why in idle:
            if options.get(key) is not None:
                raise RecipeError(f"strategy.{key}: {options.get('schedule', 'gpipe')!r} {why}")
        planned = options.get("stages", "auto") == "auto"
        if not planned and options.get("plan") is not None:
            raise RecipeError("strategy.plan: stages are given; use stages = 'auto', or leave plan out")
        if planned and isinstance(options.get("replicas"), Sequence):
            raise RecipeError(
                "strategy.replicas: with stages = 'auto' give one number for all stages, or give the stages"
            )
        if planned and options.get("plan") == "pipedream" and options.get("replicas") is not None:
            raise RecipeError("strategy.replicas: 'pipedream' plans them; leave it out, or use 'hydrozoa'")


def _check_counts(given: Any, key: str) -> None:
    """Refuse numbers of layers or of workers that are not at least 1."""
    counts = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for count in counts or [0]:
        if isinstance(count, int) and count < 1:
            raise RecipeError(f"strategy.{key}: expected numbers of at least 1, got {given!r}")


@costs.add("pipeline")
class PipelineCost(StrategyCost):
    """Stages of layers on workers of their own; who runs which is divided by measured times."""

    untried: ClassVar[str] = "its stages are divided by times that the run itself measures"
