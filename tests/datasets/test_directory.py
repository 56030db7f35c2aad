"""Folders of graph.save are recognised, read back, and checked unless that is left out."""

from pathlib import Path

import pytest

import weft
from weft.datasets.directory import directory, is_weft_directory
from weft.errors import FormatError


def test_a_saved_graph_is_known_by_its_manifest_and_checked(tmp_path: Path) -> None:
    assert not is_weft_directory(tmp_path)
    graph = weft.Graph.from_edges([[0, 1], [1, 2]], x=[[1.0], [2.0], [3.0]])
    graph.save(tmp_path / "g")
    assert is_weft_directory(tmp_path / "g")
    assert directory(tmp_path / "g").x.tolist() == graph.x.tolist()
    array = tmp_path / "g" / "node_0_0.npy"
    held = bytearray(array.read_bytes())
    held[-1] ^= 1
    array.write_bytes(bytes(held))
    with pytest.raises(FormatError):
        directory(tmp_path / "g")
    assert directory(tmp_path / "g", verify=False).x.tolist() != graph.x.tolist()
