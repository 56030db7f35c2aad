"""Grids and vertex cuts through the command: equal numbers, resumed, one line per mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import main
from weft.config import Recipe
from weft.errors import RecipeError
from weft.events import read_events
from weft.train.workers.worker import prepare

SMALL = {"name": "community", "nodes": 60, "classes": 3}
RECIPE = ["data.name=community", "data.nodes=300", "data.classes=4", "model.hidden=8"]
RECIPE += ["train.precision=float64", "train.checkpoint_every=5"]


def train(out: Path, *arguments: str, epochs: int, settings: tuple[str, ...] = ()) -> dict[str, Any]:
    """Train by the command to its good end and return the object that it prints."""
    given = [f"--set={each}" for each in (*settings, f"train.epochs={epochs}")]
    done = subprocess.run(
        [sys.executable, "-m", "weft", "train", *given, f"--out={out}", "--json", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def losses(out: Path) -> list[float]:
    """Return the training loss of each epoch."""
    return [event["loss"] for event in read_events(out) if event["event"] == "epoch"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_a_grid_of_workers_gives_the_losses_of_one(tmp_path: Path, workers: int) -> None:
    settings = (*RECIPE, "model.name=gat", "model.heads=2")
    here = [f"--set={each}" for each in (*settings, "train.epochs=3")]
    assert main(["train", *here, f"--out={tmp_path / 'one'}"]) == 0
    on_grid = (*settings, "strategy.name=grid", "strategy.columns=2")
    many = train(tmp_path / "many", f"--workers={workers}", epochs=3, settings=on_grid)
    assert losses(tmp_path / "many") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)
    assert (many["workers"], many["strategy"]) == (workers, "grid")
    assert many["bytes_sent"] > 0


@pytest.mark.slow  # beside test_staged, which holds 4 ranks to one process
def test_four_workers_in_two_dimensions_give_the_losses_of_one(tmp_path: Path) -> None:
    train(tmp_path / "one", epochs=3, settings=(*RECIPE, "model.name=gcn"))
    staged = (*RECIPE, "model.name=gcn", "strategy.name=staged", "strategy.form=2d")
    four = train(tmp_path / "four", "--workers=4", epochs=3, settings=staged)
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)
    assert (four["workers"], four["strategy"]) == (4, "staged")


@pytest.mark.slow
def test_a_delayed_vertex_cut_is_continued_bit_for_bit(tmp_path: Path) -> None:
    settings = (*RECIPE, "strategy.name=vertex_cut", 'strategy.exchange={name="delayed", r=3}')
    whole, out = tmp_path / "whole", tmp_path / "run"
    train(whole, "--workers=2", "--parts=3", epochs=9, settings=settings)
    train(out, "--workers=2", "--parts=3", epochs=5, settings=settings)
    train(out, "--resume", epochs=9)
    assert losses(out) == losses(whole)
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (
            {"name": "grid", "rows": 3},
            r"strategy\.rows = 3: no grid of 4 .* 4 x 1, 2 x 2, 1 x 4",
        ),
        ({"name": "staged", "exchange": "skip"}, r"unknown key strategy\.exchange"),
        ({"name": "grid", "rows": 0}, r"strategy\.rows: expected a number"),
        ({"name": "grid", "columns": 2, "exchange": "skip"}, "'skip' needs one column, strategy.rows = 4"),
        ({"name": "grid", "exchange": "delayed"}, "'grid' does not allow 'delayed'"),
        (
            {"name": "grid", "partitioner": "libra"},
            "'libra' gives parts of edges, 'grid' needs parts of nodes",
        ),
        ({"name": "vertex_cut", "partitioner": "metis"}, "'vertex_cut' needs parts of edges: libra"),
        ({"name": "vertex_cut", "exchange": "sampled"}, "'vertex_cut' does not allow 'sampled'"),
        ({"name": "vertex_cut", "backward": "none"}, "strategy.backward: expected one of 'exact', 'local'"),
    ],
)
def test_a_layout_that_cannot_be_is_one_clear_line(
    strategy: dict[str, object], said: str, tmp_path: Path
) -> None:
    recipe = Recipe(data=SMALL, model={"name": "sage"}, strategy=strategy, train={})
    with pytest.raises(RecipeError, match=said) as refused:
        prepare(recipe, tmp_path / "run", workers=4)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()
