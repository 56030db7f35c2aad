"""Opening a data set: a path is recognised, a name looked up, options checked."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from weft.datasets import datasets, open_dataset, recognise
from weft.errors import FormatError, RecipeError, UnknownName
from weft.graph.graph import Graph


def write(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("marker", "path", "name"),
    [
        ("graph.npz", "graph.npz", "npz"),
        ("manifest.json", ".", "weft"),
        ("ind.cora.graph", ".", "planetoid"),
        ("raw/ind.cora.graph", ".", "planetoid"),
        ("raw/edge.csv.gz", ".", "ogb"),
        ("raw/edge.csv.gz", "raw", "ogb"),
        ("raw/data.npz", ".", "ogb"),
        ("raw/triplet-type-list.csv.gz", ".", "ogb"),
        ("adj_full.npz", ".", "saint"),
    ],
)
def test_path_is_recognised_by_what_lies_there(tmp_path: Path, marker: str, path: str, name: str) -> None:
    write(tmp_path / marker)
    assert recognise(tmp_path / path) == name


def test_unknown_path_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match=r"a \.npz file.*; an OGB folder.*; a Planetoid.*; a GraphSAINT"
    ) as caught:
        open_dataset(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(FormatError, match="no such file or folder"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"pickles are never opened.*from_pyg"):
        open_dataset(write(tmp_path / "data.pt"))


def test_file_is_opened_and_prepared(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_nodes=3, y=np.array([0, 1, 0]))
    graph = open_dataset(tmp_path / "g.npz", self_loops=True)
    assert graph.num_edges == 2 * 2 + 3
    assert graph.train_mask is not None


def test_ogb_folder_is_opened_from_its_root(tmp_path: Path) -> None:
    for name, text in (("edge", "0,1\n1,2\n"), ("num-node-list", "3\n")):
        write(tmp_path / "raw" / f"{name}.csv.gz", gzip.compress(text.encode()))
    assert open_dataset(str(tmp_path)).num_edges == 4


def test_saved_graph_is_opened_again(tmp_path: Path) -> None:
    graph = Graph.from_edges([[0, 1], [1, 0]], x=[[1.0], [2.0]])
    graph.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "manifest.json").read_text())
    assert open_dataset(tmp_path / "saved").x.tolist() == [[1.0], [2.0]]


def test_name_and_options_give_a_generated_graph() -> None:
    assert open_dataset(name="synthetic", nodes=50).num_nodes == 50
    assert open_dataset(name="ring", nodes=5, self_loops=True).num_edges == 15
    assert datasets["synthetic"] is datasets["community"]


def test_path_with_a_name_is_read_as_that_format(tmp_path: Path) -> None:
    with (tmp_path / "strange.dat").open("wb") as file:
        np.savez(file, edge_index=np.array([[0], [1]]), num_nodes=2)
    assert open_dataset(tmp_path / "strange.dat", name="npz").num_nodes == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "ring", "node": 5}, r"unknown key data\.node; did you mean 'nodes'"),
        ({"name": "ring", "nodes": "many"}, r"data\.nodes: expected a whole number, got 'many'"),
        ({"name": "ring", "nodes": 0}, r"data\.nodes: expected a number >= 1, got 0"),
        ({"name": "ring", "symmetrise": "always"}, r"data\.symmetrise: expected"),
        ({"name": "ring", "graph": 3}, r"unknown key data\.graph"),
        ({"name": "npz"}, r"data set 'npz' takes data\.path"),
        (
            {"name": "ring", "path": "x"},
            r"'ring' takes no data\.path: .* give one of data\.path and data\.name$",
        ),
        ({"name": "pyg"}, "needs a PyG Data or HeteroData object"),
        ({}, r"no data: give data\.path .* or data\.name"),
    ],
)
def test_wrong_option_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        open_dataset(**options)


def test_wrong_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="no dataset 'comunity'; did you mean 'community'"):
        open_dataset(name="comunity")


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(FormatError, match="expected the path of a file or folder, got 3"):
        open_dataset(3)  # type: ignore[arg-type]
