"""Registries: names that are nearly right."""

from importlib import import_module
from pathlib import Path

import pytest

import weft
from weft.errors import RecipeError
from weft.registry import suggest
from weft.samplers import samplers


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("gnc", ["sgc", "gcn", "gin"], "gcn"),  # letters in another order before other letters
        ("epoch", ["epochs", "patience"], "epochs"),
        ("gatt", ["gat", "gatv2"], "gat"),
    ],
)
def test_the_likeliest_name_is_suggested(name: str, known: list[str], nearest: str) -> None:
    assert suggest(name, known) == f"did you mean {nearest!r}? "
    assert suggest(name, known[::-1]) == f"did you mean {nearest!r}? "


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggest("x", ["gcn"]) == ""


def test_entries_in_folders_of_the_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = "from weft_shelf import things\n\nthings.add({name!r})(object())\n"
    room = tmp_path / "weft_shelf" / "room" / "inner"
    room.mkdir(parents=True)
    shelf = "from weft.registry import Registry\n\nthings = Registry('thing', 'weft_shelf')\n"
    (tmp_path / "weft_shelf" / "__init__.py").write_text(shelf)
    (room.parent / "__init__.py").write_text("")
    (room / "__init__.py").write_text("")
    for folder, name in ((room.parents[1], "top"), (room.parent, "deep"), (room, "deeper")):
        (folder / "entry.py").write_text(enter.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    things = import_module("weft_shelf").things
    assert things.names() == ["deep", "deeper", "top"]


OWN = """
import torch
from weft.partitioners.base import Partitioner
from weft.samplers import NeighborSampler

class Stripes(Partitioner):
    def __init__(self, *, seed: int = 0, width: int = 1):
        super().__init__(seed=seed)
        self.width = width

    def assign(self, graph, num_parts):
        return (torch.arange(graph.num_nodes) // self.width % num_parts).int()

class Same(NeighborSampler):
    pass
"""


def test_a_recipe_names_the_users_own_by_their_code(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = str(tmp_path / "own.py")
    graph = weft.datasets.open_dataset(name="community", nodes=60, features=4, classes=2)
    parts = weft.partitioners.partition(graph, 2, name=f"{own}:Stripes", width=3)
    assert parts.parts.tolist() == [node // 3 % 2 for node in range(60)]
    with pytest.raises(RecipeError, match=r"is no sampler: expected a subclass of Sampler"):
        samplers[f"{own}:Stripes"]
    strategy = {"name": "sampled", "fanout": [2], "batch_size": 16}
    runs = [
        weft.train(graph, "gcn", strategy={**strategy, "sampler": name}, epochs=1, layers=1).loss
        for name in ("neighbor", f"{own}:Same")
    ]
    assert runs[0] == runs[1]
