"""From what is asked for to a division."""

from pathlib import Path
from typing import Any

import pytest

import weft
from weft.comm.group import Group
from weft.errors import RecipeError
from weft.strategies.pipeline.plan import StagePlan
from weft.strategies.pipeline.planner import LayerCosts
from weft.strategies.pipeline.stage_model import check_division, stage_of_name

# Layers that are dear, then cheap; gradients cost nothing to add, cuts a little.
COSTS = LayerCosts((3.0, 1.0), (10, 10), (0, 0), 1e3)


class Many(Group):
    """Four members in one process: nothing is sent."""

    def __init__(self, size: int) -> None:
        super().__init__(0, range(size))

    def all_gather_json(self, value: Any) -> list[Any]:
        return [value] * self.size


def planned(size: int, **options: Any) -> StagePlan:
    given: dict[str, Any] = {"stages": "auto", "replicas": None, "plan": None, "micro_batches": 4}
    given |= {"vertical": False, "folder": None, "measure": lambda model: COSTS} | options
    made = StagePlan(Many(size), **given)
    made.settle(weft.nn.Stack(4, 2, layers=2))
    return made


def test_plans_differ_where_replicas_may() -> None:
    assert planned(4).division.replicas in ((4,), (3, 1))
    assert planned(4, plan="hydrozoa").division.uniform
    assert planned(4, vertical=True).division.uniform
    assert planned(2, replicas=1).division.layers == (1, 1)


def test_vertical_plans_equal_replicas_where_others_are_faster() -> None:
    dear = LayerCosts((2.0, 1.0), (10, 10), (1000, 1000), 1e5)
    assert planned(3, measure=lambda model: dear).division.replicas == (2, 1)
    assert planned(3, measure=lambda model: dear, vertical=True).division.replicas == (3,)


def test_a_plan_is_kept_and_found_again(tmp_path: Path) -> None:
    first = planned(4, folder=tmp_path)
    first.keep()
    other = planned(4, folder=tmp_path, measure=None)  # measured once in a run
    assert other.division == first.division
    assert other.told == first.told


def test_stages_that_are_counted_take_all_workers() -> None:
    assert planned(4, stages=2).division.replicas == (2, 2)
    with pytest.raises(RecipeError, match="takes 2 workers, there are 3"):
        planned(3, stages=2)
    with pytest.raises(RecipeError, match="'vertical' counts the same updates"):
        planned(3, stages=[1, 1], replicas=[1, 2], vertical=True)


def test_names_tell_the_stage_and_replicas_have_no_batch_norm() -> None:
    model = weft.nn.Stack(4, 2, layers=2, norm="batch", residual=True)
    division = planned(2, stages=[1, 1]).division
    assert [stage_of_name(name, division) for name in ("layers.0.w", "norms.1.bias", "final.bias")] == [
        0,
        1,
        1,
    ]
    check_division(model, planned(2, stages=2).division)
    with pytest.raises(RecipeError, match=r"model.norm: replicas of a stage see other micro-batches"):
        check_division(model, planned(4, stages=2).division)
