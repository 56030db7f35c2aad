"""A few bytes that tell of more nodes or relations than any memory holds are refused before any is taken."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import ogb

from weft.datasets import open_dataset
from weft.datasets.foreign_files import rows_by_number
from weft.errors import FormatError, GraphError
from weft.graph.graph import Graph

MANY = 10**12
PLAIN = {"edge_index": np.array([[0, 1], [1, 0]])}
TYPED = {"node_types": np.array(["a", "b"]), "edge_a_b": np.array([[0], [1]]), "target": np.array("a")}
TRIPLES = {"train": np.array([[0, 0, 1], [1, 0, 0]])}


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (PLAIN | {"num_nodes": np.array(MANY)}, "a graph of 1,000,000,000,000 nodes would take"),
        (PLAIN | {"num_nodes": np.array(MANY), "train_1": np.array([0])}, "nodes would take"),
        (TYPED | {"num_nodes": np.array([2, MANY])}, "nodes 'b' would take"),
        (TYPED | {"num_nodes": np.array([2.0, 2.0])}, "num_nodes must hold whole numbers, got float64"),
        ({"edge_a_b": TYPED["edge_a_b"], "num_bs": np.array(MANY)}, "nodes 'b' would take"),
        ({"train": np.array([[0, 0, MANY]])}, "nodes would take"),
        ({"train": np.array([[0, MANY, 1]])}, "1,000,000,000,001 unnamed relations for 1 triples"),
    ],
)
def test_counts_of_an_archive(tmp_path: Path, arrays: dict[str, Any], told: str) -> None:
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(FormatError, match=told):
        open_dataset(tmp_path / "g.npz")


def in_a_list(folder: Path) -> None:
    (ogb(folder) / "raw" / "num-node-list.csv.gz").write_bytes(gzip.compress(f"{MANY}\n".encode()))


def in_an_archive(folder: Path) -> None:
    (folder / "raw").mkdir()
    np.savez(folder / "raw" / "data.npz", edge_index=PLAIN["edge_index"], num_nodes_list=np.array([MANY]))


@pytest.mark.parametrize("write", [in_a_list, in_an_archive])
def test_counts_of_an_ogb_folder(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    with pytest.raises(FormatError, match="a graph of 1,000,000,000,000 nodes would take"):
        open_dataset(tmp_path, name="ogb")


def test_types_that_have_no_room_together() -> None:
    with pytest.raises(GraphError, match="node types together: a graph of 1,000,000,000,001 nodes takes"):
        Graph.from_types({"a": {"num_nodes": MANY}, "b": {"num_nodes": 1}}, {})


def test_rows_of_each_number() -> None:
    numbers = np.array([2, 0, 2, 4, 0])
    found = rows_by_number(numbers, 6)
    assert [rows.tolist() for rows in found] == [[1, 4], [], [0, 2], [], [3], []]
