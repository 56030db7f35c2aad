"""`weft explain`: what becomes of the messages of a model on a graph, or of a recipe."""

import json
from pathlib import Path

import pytest

from weft.cli.main import main

SMALL = ["--set", "data.nodes=200"]
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.map = torch.nn.Linear(in_features, out_features)

    def forward(self, blocks, x):
        return blocks[0].propagate(lambda a, b: self.map(a - b).relu(), src=(x,), dst=(x,))
"""


def test_settings_alone_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--set", "model.name=edgeconv", *SMALL]) == 0
    told = capsys.readouterr().out
    assert "reduced by max" in told
    assert "reads other" in told


def test_a_layer_by_its_name_on_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import weft

    weft.datasets.open_dataset(name="community", nodes=150).save(tmp_path / "graph")
    assert main(["explain", "edgeconv", "--graph", str(tmp_path / "graph"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["messages"]
    assert {each["destinations"] for each in found} == {150}
    assert {each["reduce"] for each in found} == {"max"}


def test_a_class_of_a_file_with_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(NET)
    page = tmp_path / "messages.html"
    given = ["explain", f"{tmp_path / 'own.py'}:Net", "--graph", "community", *SMALL, "--picture", str(page)]
    assert main(given) == 0
    told = capsys.readouterr()
    assert "200 x" in told.out.split("compiled: ")[1], "the map runs on nodes"
    assert str(page) in told.err
    assert page.read_text().count("<svg class=") == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nothing", *SMALL], "no layer 'nothing'"),
        (["gcn", "--graph", "nowhere"], "--graph nowhere: no such file or folder, and no data set"),
        (["nowhere.toml"], "no recipe nowhere.toml"),
    ],
)
def test_what_is_not_there_is_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("model", ["edgeconv", "own"])
def test_a_graph_without_labels_is_explained(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import weft

    weft.datasets.open_dataset(name="community", nodes=150).with_data(y=None).save(tmp_path / "graph")
    (tmp_path / "own.py").write_text(NET)
    named = model if model != "own" else f"{tmp_path / 'own.py'}:Net"
    assert main(["explain", named, "--graph", str(tmp_path / "graph"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["messages"]
    assert {each["destinations"] for each in found} == {150}
