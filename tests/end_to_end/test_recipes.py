"""The recipes that ship: each is accepted as it stands and trains; the real graphs reach what they should."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import weft
from weft.cli.main import main
from weft.config import read_recipe
from weft.train.launch import train
from weft.train.resolve import DEFAULT_DATA, DEFAULT_MODEL

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
DATA = ROOT.parent / "shared" / "data"
LONG = ("fb15k237_rgcn", "fb15k237_transe", "knowledge_graph", "wn18rr_complex", "wn18rr_rotate")
"""Recipes of which two epochs are minutes on a CPU; they are tried with narrow rows."""


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def need(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in LONG), id=path.stem) for path in RECIPES],
)
def test_every_recipe_trains_as_it_stands(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = read_recipe(path)
    if "path" in recipe.data:
        need(Path(recipe.data["path"]).name)
    monkeypatch.chdir(ROOT)
    narrow = ["--set", "task.width=16"] if path.stem in LONG else []
    narrow += ["--set", "strategy.stages=1"] if recipe.strategy.get("name") == "pipeline" else []
    settings = ["--set", "train.epochs=2", *narrow, "--out", str(tmp_path / "run")]
    summary = run(["train", str(path), *settings], capsys)
    assert summary["epochs"] == 2


def test_the_default_recipe_is_what_an_empty_command_trains() -> None:
    recipe = read_recipe(ROOT / "recipes" / "default.toml")
    assert recipe.data["name"] == DEFAULT_DATA["name"]
    assert recipe.model["name"] == DEFAULT_MODEL


class Rows(nn.Module):
    """A linear model, or one with a hidden layer, that sees no edges."""

    def __init__(self, in_features: int, out_features: int, hidden: int = 0) -> None:
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        deep = nn.Sequential(
            nn.Linear(in_features, hidden or 1), nn.ReLU(), nn.Linear(hidden or 1, out_features)
        )
        self.map = deep if hidden else linear

    def forward(self, blocks: object, x: Tensor) -> Tensor:
        return self.map(x)  # type: ignore[no-any-return]


def test_the_built_in_graph_needs_its_edges() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=5000)
    width = graph.x.shape[1]
    linear, deep = (train(graph, Rows(width, graph.num_classes, n), epochs=40, lr=0.02) for n in (0, 64))
    sage = train(graph, "sage", hidden=32, epochs=20)
    assert sage.test_accuracy is not None
    assert sage.test_accuracy > 0.85
    assert sage.test_accuracy > (linear.test_accuracy or 1) + 0.15
    assert sage.test_accuracy > (deep.test_accuracy or 1) + 0.15


def test_the_documented_command_works_on_cora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("cora.npz")
    monkeypatch.chdir(ROOT)
    arguments = ["train", "--set", "data.path=../shared/data/cora.npz", "--set", "model.name=gcn"]
    summary = run([*arguments, "--out", str(tmp_path / "run")], capsys)
    assert summary["test_accuracy"] > 0.78  # a linear model gets .60
    assert (tmp_path / "run" / "report.html").is_file()


def test_relations_matter_on_aifb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("rdf_aifb.npz")
    monkeypatch.chdir(ROOT)
    summary = run(["train", "recipes/aifb_rgcn.toml", "--out", str(tmp_path / "run")], capsys)
    assert summary["test_accuracy"] >= 0.88
    assert summary["val_accuracy"] is None


def test_several_labels_are_learned_for_nodes_not_seen_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("blogcatalog3_multilabel.npz")
    monkeypatch.chdir(ROOT)
    few = ["--set", "train.epochs=90", "--set", "train.eval_every=10"]
    summary = run(["train", "recipes/multilabel_sage.toml", *few, "--out", str(tmp_path / "run")], capsys)
    assert summary["metric"] == "micro_f1"
    assert summary["metrics"]["test"]["micro_f1"] > 0.2  # the nodes' own rows alone give .06


@pytest.mark.parametrize(
    ("recipe", "data", "epochs", "metric", "least"),
    [
        ("cora_links", "cora.npz", 30, "roc_auc", 0.8),
        ("traffic_regression", "chameleon_traffic.npz", 30, "r2", 0.2),
        ("cora_unsupervised", "cora.npz", 1, "probe", 0.6),
        pytest.param("lastfm_artists", "lastfm.npz", 1, "roc_auc", 0.65, marks=pytest.mark.slow),
    ],
)
def test_other_tasks_are_learned_too(
    recipe: str,
    data: str,
    epochs: int,
    metric: str,
    least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    need(data)
    monkeypatch.chdir(ROOT)
    few = ["--set", f"train.epochs={epochs}", "--set", "train.eval_every=10"]
    summary = run(["train", f"recipes/{recipe}.toml", *few, "--out", str(tmp_path / "run")], capsys)
    assert summary[metric] > least  # chance gives .5, the mean of all numbers 0, the largest class .3
    assert "test_accuracy" not in summary


@pytest.mark.parametrize(
    ("model", "epochs", "least"), [("rgcn", 15, 0.7), ("sage", 15, 0.7), ("hgt", 10, 0.6)]
)
def test_a_graph_of_several_node_types_trains(
    model: str, epochs: int, least: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = need("hetero_dblp.npz")
    arguments = [
        "train",
        "--set",
        f"data.path={path}",
        "--set",
        f"model.name={model}",
        "--set",
        "model.hidden=32",
    ]
    summary = run([*arguments, "--set", f"train.epochs={epochs}", "--out", str(tmp_path / "run")], capsys)
    assert summary["test_accuracy"] > least  # chance is about .3
