"""`weft.plan(...)`: a table, a file or a recipe, planned."""

import pytest
from plan_jobs import SMALL
from plan_machine import machine

import weft
from weft.errors import InputError, RecipeError


def test_the_package_plans_when_it_is_called() -> None:
    table = {**SMALL, "model": {"hidden": 8}}
    plan = weft.plan(table, workers=[1], memory="1GiB", only=["single"], machine=machine())
    (told,) = plan.configurations
    assert (told.strategy, told.workers, told.bytes_per_epoch) == ("single", 1, 0)
    assert {each.memory_limit_bytes for each in plan.configurations} == {1 << 30}
    assert plan.graph["num_nodes"] == 240
    assert not told.estimated


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(RecipeError, match="memory: expected a size"):
        weft.plan({}, memory="much", machine=machine())
    with pytest.raises(InputError, match="--epochs 1: expected at least 2"):
        weft.plan({}, epochs=1, machine=machine())
