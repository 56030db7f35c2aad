"""The planner finds what trying every division finds."""

import random
from collections.abc import Iterator

import pytest

from weft.errors import RecipeError
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.planner import (
    LayerCosts,
    balanced,
    even,
    hydrozoa,
    pace,
    pipedream,
    step_seconds,
)


def every_division(depth: int, workers: int) -> Iterator[StageDivision]:
    """Give all divisions of so many layers over so many workers."""
    for stages in range(1, min(depth, workers) + 1):
        for layers in sums(depth, stages):
            for replicas in sums(workers, stages):
                yield StageDivision(layers, replicas)


def sums(total: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (total,)
        return
    for first in range(1, total - count + 2):
        for rest in sums(total - first, count - 1):
            yield (first, *rest)


def drawn(seed: int, depth: int) -> LayerCosts:
    """Return costs of which each kind is dear in some: products, links, or adding up gradients."""
    draw = random.Random(seed)
    sizes = [tuple(draw.randrange(1, 2000) for _ in range(depth)) for _ in range(2)]
    seconds = tuple(draw.uniform(0.01, 1.0) for _ in range(depth))
    return LayerCosts(seconds, sizes[0], sizes[1], bandwidth=10 ** draw.uniform(2, 5))


@pytest.mark.parametrize("seed", range(30))
def test_no_division_is_faster_than_the_planned_one(seed: int) -> None:
    depth, workers = 1 + seed % 5, 1 + seed % 4
    costs = drawn(seed, depth)
    plan = pipedream(costs, workers)
    assert (sum(plan.layers), plan.workers) == (depth, workers)
    assert pace(costs, plan) == pytest.approx(
        min(pace(costs, each) for each in every_division(depth, workers))
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_equal_replicas_are_faster_than_the_planned_ones(seed: int) -> None:
    depth, workers, micro = 2 + seed % 4, 4, 1 + seed % 9
    costs = drawn(seed, depth)
    plan = hydrozoa(costs, workers, micro_batches=micro)
    able = [each for each in every_division(depth, workers) if each.uniform]
    best = min(step_seconds(costs, each, micro) for each in able)
    assert step_seconds(costs, plan, micro) == pytest.approx(best)
    single = StageDivision(balanced(costs, 2), (1, 1))
    assert pace(costs, single) == min(
        pace(costs, each) for each in every_division(depth, 2) if each.num_stages == 2
    )


def test_dear_layers_are_replicated_and_dear_links_are_not_cut() -> None:
    free = {"activations": (1, 1, 1), "weights": (0, 0, 0), "bandwidth": 1e9}
    assert pipedream(LayerCosts((4.0, 1.0, 1.0), **free), 3).replicas == (3,)  # type: ignore[arg-type]
    heavy = LayerCosts((2.0, 1.0, 1.0), (1, 10**6, 1), (10**6, 10**6, 10**6), 1e5)
    assert pipedream(heavy, 2) == StageDivision((1, 2), (1, 1))


def test_costs_are_those_of_the_papers() -> None:
    costs = LayerCosts((2.0, 1.0), (100, 10), (300, 500), bandwidth=1000.0)
    assert costs.stage(0, 2, 1) == 3.0
    assert costs.stage(0, 1, 2) == pytest.approx((2.0 + 4 * 1 * 300 / (2 * 1000)) / 2)
    assert costs.stage(0, 2, 3) == pytest.approx((3.0 + 4 * 2 * 800 / (3 * 1000)) / 3)
    assert costs.link(1) == pytest.approx(2 * 100 / 1000)
    grid = StageDivision((1, 1), (2, 2))
    # 4 micro-batches by 2 replicas are 2 turns and 1 to fill; a ring adds up the gradients of a stage
    assert step_seconds(costs, grid, 4) == pytest.approx((2 + 1) * 2.0 + 2 * (1 / 2) * 500 / 1000)
    assert step_seconds(costs, grid, 5) == pytest.approx((3 + 1) * 2.0 + 2 * (1 / 2) * 500 / 1000)


def test_replicas_that_are_given_stay() -> None:
    assert hydrozoa(drawn(1, 4), 4, micro_batches=4, replicas=2).replicas == (2, 2)
    with pytest.raises(
        RecipeError, match="5 workers are no stages of 1 replicas each of a model of 3 layers"
    ):
        hydrozoa(drawn(1, 3), 5, micro_batches=4, replicas=1)


def test_stages_that_are_counted_are_even() -> None:
    assert even(5, 2) == (2, 3)
    assert even(4, 4) == (1, 1, 1, 1)
    assert len(list(every_division(3, 2))) == 3
