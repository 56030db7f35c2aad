"""A recipe is proved with its own task, by the strategies that take its targets."""

from pathlib import Path

import pytest

from weft.comm.group import Group
from weft.config import make_recipe
from weft.train.proof.own_recipe import OwnRecipe


def given(folder: Path, **task: object) -> OwnRecipe:
    data, model = {"name": "community", "nodes": 80}, {"name": "gcn", "hidden": 4}
    return OwnRecipe(make_recipe({"data": data, "task": task, "model": model}), folder)


@pytest.mark.parametrize(("name", "all_of_them"), [("link_prediction", False), ("node_regression", True)])
def test_a_recipe_is_proved_on_strategies_that_take_its_targets(
    tmp_path: Path, name: str, all_of_them: bool
) -> None:
    strategies = {pair.strategy for pair, _ in given(tmp_path, name=name).cases(1)}
    assert {"halo", "sequential"} <= strategies
    assert ("vertex_cut" in strategies) is all_of_them


def test_links_of_a_recipe_are_proved(tmp_path: Path) -> None:
    proof = given(tmp_path, name="link_prediction", width=4)
    proof.prepare([1])
    outcomes = proof.prove(Group.alone())
    assert [outcome.case for outcome in outcomes if not outcome.holds or outcome.refused] == []
