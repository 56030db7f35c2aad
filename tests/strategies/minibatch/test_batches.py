"""Clusters, random subgraphs and histories on several ranks: the steps of one process."""

from pathlib import Path
from typing import Any

import batch_jobs
import pytest
import word_jobs
from ranks import run_ranks

from weft.config import make_recipe
from weft.errors import RecipeError
from weft.train.launch import run_recipe
from weft.train.trainer import Place
from weft.train.workers.worker import prepare


@pytest.mark.parametrize(
    ("size", "share"),
    [(1, 2), (2, 2), *(pytest.param(size, 1, marks=pytest.mark.slow) for size in (1, 2, 4))],
    ids=["1", "2", "1-whole", "2-whole", "4-whole"],
)
def test_ranks_take_the_steps_of_one_process(size: int, share: int) -> None:
    for rank, wrong in enumerate(run_ranks(size, batch_jobs.equal_to_one_process, share)):
        assert not wrong, f"rank {rank}: {wrong[:12]} ({len(wrong)} in all)"


def test_blocks_of_ranks_answer_every_word_of_layers_as_in_one_process() -> None:
    for rank, wrong in enumerate(run_ranks(2, word_jobs.answered)):
        assert not wrong, f"rank {rank}: {wrong[:12]} ({len(wrong)} in all)"


def sections(strategy: dict[str, Any]) -> dict[str, Any]:
    """Return a short run."""
    return {
        "data": {"name": "community", "nodes": 200, "features": 8, "classes": 3},
        "model": {"name": "sage", "hidden": 8, "layers": 2},
        "strategy": strategy,
        "train": {"epochs": 2},
    }


def test_clusters_of_a_recipe_are_those_of_one_process(tmp_path: Path) -> None:
    recipe = sections({"name": "clustered", "clusters": 6, "together": 2, "partitioner": "range"})
    expected = run_recipe(make_recipe(recipe), Place()).loss
    prepare(make_recipe(recipe), tmp_path, workers=2)
    for loss in run_ranks(2, batch_jobs.by_recipe, recipe, str(tmp_path)):
        assert loss == pytest.approx(expected, rel=1e-5)


def test_fewer_clusters_than_workers_are_refused(tmp_path: Path) -> None:
    recipe = make_recipe(sections({"name": "clustered", "clusters": 2, "together": 1}))
    with pytest.raises(RecipeError, match=r"strategy\.clusters: 2 cannot occupy 3 workers"):
        prepare(recipe, tmp_path, workers=3)
