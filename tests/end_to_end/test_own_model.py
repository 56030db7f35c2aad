"""A user's own script trains the same numbers alone, with workers, under torchrun and by a recipe."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
SCRIPT = SUPPORT / "own_script.py"


def run(command: list[str], cwd: Path = SUPPORT, **env: str) -> subprocess.CompletedProcess[str]:
    outer = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    env = {**outer, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "WEFT_STALL": "120", **env}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280)


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@cache
def alone() -> dict[str, Any]:
    (result,) = results(run([sys.executable, str(SCRIPT), "2", "{}"]))
    return result


def check(result: dict[str, Any], *, workers: int, rounds: int) -> None:
    one = alone()
    assert result["losses"] == pytest.approx(one["losses"][:rounds], rel=1e-9)
    assert result["weights"] == pytest.approx(one["weights"][:rounds], rel=1e-9)
    assert {"sure", "accuracy", "loss"} <= set(result["test"])
    if rounds == 2:
        # Of several workers a metric that needs all rows is told where it was asked for.
        assert result["test"] == pytest.approx({name: one["test"][name] for name in result["test"]}, rel=1e-9)
    assert (result["workers"], result["sent"]) == (workers, workers > 1)


def test_a_script_starts_workers_that_import_its_model(tmp_path: Path) -> None:
    out = {"workers": 2, "strategy": {"name": "halo", "partitioner": "hash"}}
    (result,) = results(run([sys.executable, str(SCRIPT), "1", json.dumps(out)], cwd=tmp_path))
    check(result, workers=2, rounds=1)
    assert result["epochs"] == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_script_under_torchrun_is_a_rank_of_the_group() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ranks = results(
        run([*torchrun, str(SCRIPT), "2", '{"strategy": {"name": "halo", "partitioner": "hash"}}'])
    )
    assert len(ranks) == 2
    for result in ranks:
        check(result, workers=2, rounds=2)
    assert sorted(result["epochs"] for result in ranks) == [0, 4]


@pytest.mark.slow
def test_a_recipe_names_the_class_for_one_process_for_workers_and_for_inference(tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        "[data]\nname = 'community'\nnodes = 120\ndegree = 6\nclasses = 3\nfeatures = 8\nseed = 1\n"
        "[model]\nclass = 'own_script:Net'\nwidth = 8\nhidden = 5\nclasses = 3\n"
        "[train]\nepochs = 2\nloss = 'own_code:focal'\nmetrics = {sure = 'own_code:confidence'}\n"
        "metric = 'sure'\nprecision = 'float64'\n"
    )
    weft = [sys.executable, "-m", "weft"]
    (one,) = results(run([*weft, "train", str(recipe), "--json", "--out", str(tmp_path / "one")]))
    several = ["--workers", "2", "--set", "strategy.partitioner=hash", "--out", str(tmp_path / "two")]
    (two,) = results(run([*weft, "train", str(recipe), "--json", *several]))
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-9)
    assert two["metrics"]["test"]["sure"] == pytest.approx(one["metrics"]["test"]["sure"], rel=1e-9)
    assert (two["workers"], two["metric"]) == (2, "sure")
    infer = [*weft, "infer", str(tmp_path / "two"), "--json", "--out"]
    (told,) = results(run([*infer, str(tmp_path / "predictions")]))
    assert told["nodes"] == 120
    elsewhere = run([*infer, str(tmp_path / "nothing")], cwd=tmp_path)
    assert elsewhere.returncode == 2
    (line,) = elsewhere.stderr.splitlines()
    assert (
        "trained own_script:Net, which cannot be made again: model.class: cannot import 'own_script'" in line
    )
