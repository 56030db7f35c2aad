"""One of two ranks breaks within a step: both end, and both say which rank, why and what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
from broken_jobs import broken_on_rank_1
from ranks import run_ranks

from weft.config import make_recipe
from weft.train.workers import worker

RECIPE: dict[str, Any] = {
    "data": {"name": "community", "nodes": 60},
    "strategy": {"name": "sampled", "batch_size": 8},
    "train": {"epochs": 4, "checkpoint_every": 1},
}


def told(out: Path, what: str) -> list[str]:
    """Return the last words of both ranks of a run that broke."""
    worker.prepare(make_recipe(RECIPE), out, workers=2)
    with pytest.raises(AssertionError) as caught:
        run_ranks(2, broken_on_rank_1, str(out), what, RECIPE)
    text = str(caught.value).partition("\nassert")[0]
    return [
        part.strip().splitlines()[-1] for part in re.split(r"^rank [01]:\n", text, flags=re.MULTILINE)[1:]
    ]


def test_no_memory_on_one_rank_ends_both_with_rank_cause_and_remedy(tmp_path: Path) -> None:
    other, own = told(tmp_path, "memory")
    assert "the GPU has no memory left; use more parts" in own
    assert "rank 1: the GPU has no memory left; use more parts" in other


def test_a_loss_that_is_not_finite_on_one_rank_stops_both_with_step_and_rank(tmp_path: Path) -> None:
    for said in told(tmp_path, "loss"):
        assert "TrainingError: the loss became nan in epoch 2, step 3 of 5, on rank 1: lower train.lr" in said
        assert "the checkpoint of epoch 1 is kept" in said
