"""Pipelines: a flush is the batch of one process, and delayed updates are those that one process computes."""

from pathlib import Path
from typing import Any

import pipeline_jobs
import pytest
from ranks import run_ranks

import weft
from weft.config import make_recipe
from weft.errors import InputError, RecipeError
from weft.train.launch import run_recipe
from weft.train.resolve import resolve
from weft.train.trainer import Place


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=60, degree=4, features=6, classes=3)


def test_two_stages_compute_what_one_process_does_and_go_on(tmp_path: Path) -> None:
    for wrong in run_ranks(2, pipeline_jobs.two, str(tmp_path)):
        assert wrong == []


def test_places_that_processes_share_compute_what_one_process_does() -> None:
    for wrong in run_ranks(2, pipeline_jobs.dealt):
        assert wrong == []


@pytest.mark.slow
def test_four_stages_compute_what_one_process_does() -> None:
    for wrong in run_ranks(4, pipeline_jobs.four):
        assert wrong == []


def test_one_worker_is_a_pipeline_of_one_stage_that_accumulates(graph: weft.Graph) -> None:
    how = {"name": "pipeline", "fanout": [2, 2], "batch_size": 16}
    staged = weft.train(graph, "sage", strategy={**how, "micro_batches": 3}, epochs=2, hidden=8)
    sampled = weft.train(graph, "sage", strategy={**how, "name": "sampled"}, epochs=2, hidden=8)
    assert staged.loss == pytest.approx(sampled.loss, rel=1e-5)
    late = weft.train(graph, "sage", strategy={**how, "schedule": "1f1b"}, epochs=2, hidden=8)
    assert late.loss == pytest.approx(sampled.loss, rel=1e-5)  # one stage has nobody to be late for


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ({"schedule": "1f1b", "micro_batches": 2}, "micro_batches: '1f1b' updates after each batch"),
        ({"versions": "stash"}, "versions: 'gpipe' has one version"),
        ({"stages": 2, "plan": "hydrozoa"}, "plan: stages are given"),
        ({"replicas": [1, 2]}, "replicas: with stages = 'auto' give one number"),
        ({"plan": "pipedream", "replicas": 2}, "replicas: 'pipedream' plans them"),
        ({"stages": [2, 0]}, "stages: expected numbers of at least 1"),
        ({"stages": []}, "stages: expected numbers of at least 1"),
        ({"grow": {"factor": 2}}, "grow: after how many epochs"),
        ({"grow": {"every": 0}}, "grow.every"),
        ({"sampler": "saint"}, "sampler: 'saint' gives no neighbourhoods"),
        ({"exchange": "exact"}, "exchange"),
    ],
)
def test_options_that_cannot_act_are_refused_before_any_data_is_read(strategy: Any, told: str) -> None:
    with pytest.raises(RecipeError, match=f"strategy.{told}"):
        resolve(make_recipe({"strategy": {"name": "pipeline", **strategy}}), workers=2)


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"model": {"name": "sage", "jumping": "cat"}}, "model.jumping: 'cat' reads the rows of every layer"),
        ({"model": {"name": "sage", "embedding": {"width": 4}}}, "learned rows would be copied"),
        ({"strategy": {"stages": 2}}, r"2 stages takes 2 workers, there are 1; start it with --workers 2"),
        ({"strategy": {"stages": 3}}, "stages: 3 of a model of 2 layers"),
        ({"strategy": {"stages": [1]}}, r"\[1\] are 1 layers, the model has 2"),
        ({"strategy": {"stages": 1, "replicas": [1, 1]}}, "there are 1 stages; give one for each"),
        ({"strategy": {"fanout": [2]}}, "the model takes 2 hops"),
        ({"train": {"precision": "bfloat16"}}, "train.precision: stages hand each other float32 or float64"),
    ],
)
def test_what_cannot_be_staged_is_refused_in_one_line(sections: Any, told: str) -> None:
    given = {"model": {"name": "sage"}, "train": {"epochs": 1}, "data": {"name": "community", "nodes": 60}}
    given |= sections
    given["strategy"] = {"name": "pipeline", **sections.get("strategy", {})}
    with pytest.raises(InputError, match=told) as found:
        run_recipe(make_recipe(given), Place())
    assert "\n" not in str(found.value)
