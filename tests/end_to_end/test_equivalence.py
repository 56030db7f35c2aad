"""Workers and one process, side by side: real graphs over 20 epochs, and the whole proof."""

from pathlib import Path
from typing import Any

import proof_jobs
import pytest
import ranks

from weft.cli.main import main
from weft.comm.group import Group
from weft.config import make_recipe
from weft.events import read_events
from weft.train.launch import run_recipe
from weft.train.trainer import Place
from weft.train.workers.worker import prepare

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EPOCHS = 20
GRAPHS = {
    "cora": ("gcn", {"hidden": 16}),
    "pubmed": ("gat", {"hidden": 16, "heads": 2, "attention_dropout": 0.3}),
    "wordnet30": ("sage", {"hidden": 32}),
}


def _path(name: str) -> str:
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return str(path)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("cora", [2]),
        pytest.param("cora", [4], marks=pytest.mark.slow),
        pytest.param("pubmed", [2, 4], marks=pytest.mark.slow),
        pytest.param("wordnet30", [2, 4], marks=pytest.mark.slow),
    ],
)
def test_the_losses_of_20_epochs_agree_to_6_digits(
    name: str, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "LIMIT", 600.0)
    arguments = _path(name), *GRAPHS[name], EPOCHS
    alone = proof_jobs.epochs(Group.alone(), *arguments)
    assert alone[-1] < alone[0]
    for size in workers:
        for losses in ranks.run_ranks(size, proof_jobs.epochs, *arguments, timeout=120.0):
            assert losses == pytest.approx(alone, rel=5e-7)


def test_eight_parts_on_two_workers_give_the_losses_of_one_process(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "data": {"name": "community", "nodes": 80},
        "model": {"name": "gat", "hidden": 4, "heads": 2},
        "train": {"epochs": 5, "precision": "float64"},
    }
    run_recipe(make_recipe(sections), Place(out=tmp_path / "one"))
    sections["strategy"] = {"name": "halo", "parts": 8}
    prepare(make_recipe(sections), tmp_path / "eight", workers=2)
    ranks.run_ranks(2, proof_jobs.run, sections, str(tmp_path / "eight"))
    one, eight = (
        [event["loss"] for event in read_events(tmp_path / out) if event["event"] == "epoch"]
        for out in ("one", "eight")
    )
    assert eight == pytest.approx(one, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers",
    [  # by what they take on two cores that nobody else uses, three times over
        pytest.param(1, marks=pytest.mark.timeout(1800)),
        pytest.param(2, marks=pytest.mark.timeout(3600)),
        pytest.param(4, marks=pytest.mark.timeout(7200)),
    ],
)
def test_the_whole_proof_holds(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "equivalence", "--parts", str(workers)]) == 0
    shown = capsys.readouterr().out
    assert "FAILED" not in shown
    assert "cases take the steps of one process" in shown


@pytest.mark.slow
def test_the_proof_runs_on_a_graph_and_a_recipe_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[data]\nname = "community"\nnodes = 300\n[model]\nname = "gat"\nhidden = 8\nheads = 2\n'
        '[strategy]\nname = "halo"\npartitioner = "hash"\n'
    )
    assert main(["selftest", "equivalence", "--parts", "1,2", str(recipe)]) == 0
    shown = capsys.readouterr().out
    assert "take the steps of one process" in shown
    assert "halo sampled p=1.0" in shown
