"""Where to cut a model into stages, and how many workers each takes, from measured times and sizes.

PipeDream's dynamic programme (Narayanan et al., 2019): the slowest stage or link sets the pace, so that of
the first j layers on m workers is A(j, m) = min over k, m' of max(A(k, m - m'), 2 a_k / B, T(k..j, m')). A
stage of m replicas, which add up gradients of w bytes, takes T(i..j, m) = (sum of times + 4 (m - 1) w / (m
B)) / m, and a_k bytes cross a cut. Hydrozoa's plans (Guo et al., 2022) are D x M: M stages, each on D
workers. All workers take part; their links are taken to be equally fast.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from weft.errors import RecipeError
from weft.strategies.pipeline.division import StageDivision

PlanName = Literal["pipedream", "hydrozoa"]
_COLUMNS = ("seconds", "activations", "weights")


@dataclass(frozen=True)
class LayerCosts:
    """What one micro-batch costs in each layer."""

    seconds: tuple[float, ...]
    """Forward and backward."""
    activations: tuple[int, ...]
    """Bytes of the rows behind each layer."""
    weights: tuple[int, ...]
    """Bytes of its parameters."""
    bandwidth: float
    """Bytes a second between two workers."""

    def stage(self, first: int, stop: int, replicas: int) -> float:
        """Return the seconds a micro-batch takes of a stage of some layers, T."""
        summed = 4 * (replicas - 1) * sum(self.weights[first:stop]) / (replicas * self.bandwidth)
        return (sum(self.seconds[first:stop]) + summed) / replicas

    def link(self, cut: int) -> float:
        """Return the seconds of rows and gradients over the cut before a layer."""
        return 2 * self.activations[cut - 1] / self.bandwidth

    def to_dict(self) -> dict[str, Any]:
        """Return it as a run keeps it."""
        return {**{name: list(getattr(self, name)) for name in _COLUMNS}, "bandwidth": self.bandwidth}


def pace(costs: LayerCosts, division: StageDivision) -> float:
    """Return the seconds between two micro-batches of a full pipeline: of its slowest stage or link."""
    spans = [division.layers_of(stage) for stage in range(division.num_stages)]
    stages = [costs.stage(each.start, each.stop, r) for each, r in zip(spans, division.replicas)]
    return max([*stages, *(costs.link(each.start) for each in spans[1:])])


def pipedream(costs: LayerCosts, workers: int) -> StageDivision:
    """Return the stages and replicas that so many workers are fastest with; of equal ones, fewer stages."""
    depth = len(costs.seconds)

    @cache
    def best(stop: int, count: int) -> tuple[float, int, tuple[tuple[int, int], ...]]:
        """Return pace, number of stages, and (layers, replicas) of each, of the first layers."""
        found: list[tuple[float, int, tuple[tuple[int, int], ...]]]
        found = [(costs.stage(0, stop, count), 1, ((stop, count),))]
        for cut in range(1, stop):
            for own in range(1, count):
                before, stages, cuts = best(cut, count - own)
                slowest = max(before, costs.link(cut), costs.stage(cut, stop, own))
                found.append((slowest, stages + 1, (*cuts, (stop - cut, own))))
        return min(found)

    layers, replicas = zip(*best(depth, workers)[2])
    return StageDivision(layers, replicas)


def hydrozoa(
    costs: LayerCosts, workers: int, *, micro_batches: int, replicas: int | None = None
) -> StageDivision:
    """Return the D x M plan that a step of some micro-batches is fastest with; `replicas` says D.

    For each M the stages are those whose slowest is fastest, as in the paper: other cuts, whose gradients are
    smaller, are not tried.
    """
    depth = len(costs.seconds)
    shapes = [
        (each, workers // each)
        for each in range(1, workers + 1)
        if workers % each == 0 and workers // each <= depth and replicas in (None, each)
    ]
    if not shapes:
        told = "" if replicas is None else f" of {replicas} replicas each"
        raise RecipeError(
            f"strategy.stages: {workers} workers are no stages{told} of a model of {depth} layers; change "
            "--workers or strategy.replicas, or use a deeper model"
        )
    plans = [StageDivision(balanced(costs, stages), (each,) * stages) for each, stages in shapes]
    return min(plans, key=lambda plan: (step_seconds(costs, plan, micro_batches), plan.num_stages))


def step_seconds(costs: LayerCosts, division: StageDivision, micro_batches: int) -> float:
    """Return the seconds of a step on D x M workers: fill, run, drain, add up gradients."""
    replicas, single = division.replicas[0], StageDivision(division.layers, (1,) * division.num_stages)
    turns = -(-micro_batches // replicas) + division.num_stages - 1
    largest = max(
        sum(costs.weights[each] for each in division.layers_of(s)) for s in range(division.num_stages)
    )
    return turns * pace(costs, single) + 2 * (replicas - 1) / replicas * largest / costs.bandwidth


def balanced(costs: LayerCosts, stages: int) -> tuple[int, ...]:
    """Return the layers of each of so many stages whose slowest stage or link is fastest."""
    depth = len(costs.seconds)

    @cache
    def best(stop: int, count: int) -> tuple[float, tuple[int, ...]]:
        if count == 1:
            return costs.stage(0, stop, 1), (stop,)
        found = []
        for cut in range(count - 1, stop):
            before, cuts = best(cut, count - 1)
            found.append((max(before, costs.link(cut), costs.stage(cut, stop, 1)), (*cuts, stop - cut)))
        return min(found)

    return best(depth, stages)[1]


def even(depth: int, stages: int) -> tuple[int, ...]:
    """Return the layers of each of so many stages, equal or one more behind: layers there see fewer rows."""
    ends = [depth * stage // stages for stage in range(stages + 1)]
    return tuple(stop - start for start, stop in pairwise(ends))
