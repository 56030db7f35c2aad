"""What a plan tries: everything that the classes allow, and a reason for what they do not."""

from weft.config import make_recipe
from weft.plan.candidates import Candidate, RuledOut, candidates
from weft.strategies.base import strategies


def test_legal_configurations_are_those_that_the_classes_allow() -> None:
    found = list(candidates(make_recipe({}), [1, 2]))
    legal = {(each.strategy, each.exchange, each.workers) for each in found if isinstance(each, Candidate)}
    assert ("single", None, 1) in legal
    assert {("halo", name, 2) for name in strategies["halo"].exchanges} <= legal
    assert not any(strategy == "single" and workers == 2 for strategy, _, workers in legal)
    refused = {each.strategy: each.why for each in found if isinstance(each, RuledOut)}
    assert "weft flatten" in refused["records"]
    assert "another model" in refused["buckets"]


def test_options_of_the_recipe_stay_with_the_strategy_they_are_for() -> None:
    recipe = make_recipe({"strategy": {"name": "sampled", "batch_size": 7}})
    found = {each.strategy: each.section for each in candidates(recipe, [2], ["sampled", "halo"])}
    assert found["sampled"]["batch_size"] == 7
    assert "batch_size" not in found["halo"]


def test_a_task_that_a_strategy_cannot_learn_is_a_refusal() -> None:
    recipe = make_recipe({"task": {"name": "link_prediction"}})
    (found,) = candidates(recipe, [1], ["saint"])
    assert isinstance(found, RuledOut)
    assert "pairs" in found.why
