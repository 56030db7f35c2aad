"""Steps of a pipeline: which micro-batches go through it before it is empty, and what is told of them."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from weft.graph.parts.shard import Shard
from weft.strategies.batching import Batching
from weft.strategies.hops import checked_hops
from weft.strategies.layout import Layout
from weft.strategies.minibatch.batch_source import train_ids
from weft.strategies.minibatch.neighbourhoods import fanouts_of
from weft.strategies.minibatch.neighbours import DrawSettings
from weft.strategies.pipeline.growth import BatchSize, Growth
from weft.strategies.pipeline.micro_batches import MicroBatches, OwnBatches
from weft.strategies.pipeline.plan import StagePlan
from weft.strategies.pipeline.planner import LayerCosts
from weft.strategies.pipeline.profile import measured
from weft.strategies.pipeline.schedules import ScheduleName, jobs_of, version_of
from weft.strategies.pipeline.stage_model import StageModel, own_parameters
from weft.strategies.pipeline.stage_run import StageRound, StageRun
from weft.strategies.pipeline.story import Story
from weft.strategies.pipeline.versions import Versions, VersionsName
from weft.strategies.shared import Shared

WholeShard = Callable[[bool], Shard]
"""Reads all parts of the graph, from which micro-batches are drawn, with features or without."""


@dataclass(frozen=True)
class StageFlow:
    """How micro-batches go through the pipeline."""

    schedule: ScheduleName
    micro_batches: int
    """Of a step with `gpipe`; `1f1b` updates after each batch."""
    versions: VersionsName
    recompute: bool


class StagedBatches(Batching):
    """Batches of seeds that go through stages. A step is a flush, or with `1f1b` an epoch."""

    def __init__(
        self,
        shared: Shared,
        layout: Layout,
        plan: StagePlan,
        flow: StageFlow,
        *,
        drawing: DrawSettings,
        fanout: Any,
        growth: Growth | None,
        whole: WholeShard,
    ) -> None:
        super().__init__(shared, layout)
        self.plan, self.flow, self.drawing, self.fanout = plan, flow, drawing, fanout
        self.sizes, self.whole = BatchSize(drawing.batch_size, growth), whole
        plan.measure = self._measured
        self._seeds: Tensor | None = None
        self._batches: MicroBatches | None = None
        self._run: StageRun | None = None
        self._hops = self._steps = 0
        self._story: Story | None = None

    # Before the first step

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model whose layers cannot be stages, or that has other hops than fanouts."""
        self._hops = checked_hops(model, self.fanout, "strategy.fanout", self.layout.graph.x)
        self.plan.settle(model)

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the stage of this worker on first use, and count the steps of the epoch."""
        stack = self.plan.settle(model)
        if self._run is None:
            division, rank = self.plan.division, self.shared.group.rank
            stage = StageModel(stack, division, division.place(rank)[0], self.shared.task, self.shared.call)
            self._batches = self._made(stage.reach, features=stage.first)
            self._run = StageRun(
                self.shared, division, stage, self._versions(stack), recompute=self.flow.recompute
            )
            self.plan.keep()
        assert self._batches is not None, "made with the stage"
        epoch = int(self.shared.clock[1])
        steps = self._batches.seek(epoch)
        self._steps = min(steps, 1) if self._flows else steps
        self._story = Story(self.plan.division, self.shared.group, epoch)

    @property
    def _flows(self) -> bool:
        """Whether batches follow each other without a flush between updates."""
        return self.flow.schedule == "1f1b"

    def _versions(self, model: Any) -> Versions:
        division = self.plan.division
        stage = division.place(self.shared.group.rank)[0]
        behind = division.depths[0] - division.depths[stage] if self.flow.versions == "vertical" else 0
        return Versions(own_parameters(model, division, stage), copies=self._flows, behind=behind)

    def _made(self, reach: int, *, features: bool) -> MicroBatches:
        """Return the micro-batches of a stage that looks so many hops from the seeds; called by all."""
        if self._seeds is None:
            self._seeds = self.shared.everyones(train_ids(self.layout))
        micro = 1 if self._flows else self.flow.micro_batches
        return MicroBatches(
            self.whole(features),
            self._seeds,
            fanouts_of(self.fanout, self._hops)[:reach],
            self.drawing,
            micro=micro,
            sizes=self.sizes,
            features=features,
        )

    def _measured(self, model: Any) -> LayerCosts:
        """Return what the layers of a model cost on the first micro-batch; called by all workers."""
        batches = self._made(model.hops, features=True)
        batches.seek(0)
        return measured(model, batches.make(0, 0, batches.shares(0, 0)[0]), self.shared.group)

    # The steps of an epoch

    def __len__(self) -> int:
        return self._steps

    def batches(self, epoch: int, first: int) -> Generator[StageRound, None, None]:
        """Give what goes through the pipeline in each step, made ahead by threads."""
        rounds = [self._shares(epoch, step) for step in range(first, self._steps)]
        assert self._batches is not None, "begin_epoch makes them"
        division, rank = self.plan.division, self.shared.group.rank
        stage, replica = division.place(rank)
        own = [shares[replica :: division.replicas[stage]] for shares in rounds]
        with self._batches.prepared(epoch, [each for some in own for each in some]) as pool:
            begin = 0
            for shares, some in zip(rounds, own):
                yield self._round(shares, OwnBatches(pool, begin, division.replicas[stage]))
                begin += len(some)

    def _shares(self, epoch: int, step: int) -> list[tuple[int, Tensor]]:
        """Return (step of the draws, seeds) of each micro-batch of a round."""
        assert self._batches is not None, "begin_epoch makes them"
        if not self._flows:
            return [(step, seeds) for seeds in self._batches.shares(epoch, step)]
        every = range(len(self._batches.loader))
        return [(each, self._batches.shares(epoch, each)[0]) for each in every]

    def _round(self, shares: list[tuple[int, Tensor]], batches: OwnBatches) -> StageRound:
        division, rank, count = self.plan.division, self.shared.group.rank, len(shares)
        stage, _ = division.place(rank)
        jobs = jobs_of(self.flow.schedule, division, rank, count)
        sizes = [len(seeds) * self.shared.task.rows_per_target for _, seeds in shares]
        total, each = sum(sizes), division.replicas[stage]
        if not self._flows:
            return StageRound(jobs, batches, [total] * count, [1], total)
        means = [min(each, count - begin) for begin in range(0, count, each)]
        vertical = self.flow.versions == "vertical"
        version = (lambda micro: version_of(division, 0, micro)) if vertical else None
        return StageRound(jobs, batches, sizes, means, total, version)

    def taken(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int]:
        """Run a round through the pipeline; the last stage knows the loss."""
        round_ = cast(StageRound, batch)
        assert self._run is not None, "begin_epoch makes it"
        assert self._story is not None, "begin_epoch makes it"
        self._run.versions.begin()
        record = self._run.run(round_, optimizer)
        self._story.add(record, len(round_.counts), self._run.versions.most)
        return torch.tensor(record.loss / max(round_.total, 1), dtype=torch.float64), round_.total

    def epoch_ended(self, loss: float) -> None:
        """Have batches grow where the loss stays."""
        self.sizes.epoch_ended(loss)

    # What is told, and kept

    def run_state(self) -> dict[str, Any]:
        """Return how long the loss has stayed."""
        return self.sizes.state()

    def load_run_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.sizes.load_state(state)

    def epoch_fields(self) -> dict[str, Any]:
        """Return how the last epoch went through the stages; called by all workers."""
        if self._story is None:
            return {}
        told = self._story.told(self.flow.schedule, self.flow.versions, self.flow.recompute)
        assert self._batches is not None, "begin_epoch makes them"
        size = self._batches.loader.batch_size
        return {"pipeline": {**told, "batch_size": size, **self.plan.told}}
