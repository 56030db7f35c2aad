"""What the numbers of a graph stand for is read from beside it, and nothing where nothing is there."""

from pathlib import Path

import numpy as np
from tables import KNOWS, PEOPLE, graph_of, write_parquet

import weft
from weft.meaning import meaning_of, read_report


def test_an_ingested_graph_tells_its_classes_and_features(tmp_path: Path) -> None:
    nodes = write_parquet(tmp_path / "n.parquet", PEOPLE)
    edges = write_parquet(tmp_path / "e.parquet", KNOWS)
    sections = {"nodes": {"node": {"features": ["age"], "label": "job"}}}
    graph_of(tmp_path / "g", f"nodes={nodes}", f"edges={edges}", sections=sections)
    expected = {"classes": {"node": ["cook", "smith"]}, "features": {"node": ["age"]}}
    assert meaning_of(tmp_path / "g") == expected
    assert read_report(tmp_path / "g")["classes"] == expected["classes"]


def test_other_graphs_tell_nothing(tmp_path: Path) -> None:
    weft.Graph.from_edges([[0], [1]]).save(tmp_path / "g")
    assert read_report(tmp_path / "g") == meaning_of(tmp_path / "g") == {}
    assert meaning_of(None) == meaning_of(tmp_path / "nowhere") == {}


def test_an_npz_file_may_name_its_classes_as_text_or_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", class_names=np.array([b"cook", b"smith"]))
    np.savez(tmp_path / "b.npz", class_names=np.array(["cook", "smith"]))
    np.savez(tmp_path / "c.npz", other=np.zeros(1))
    named = {"classes": {"node": ["cook", "smith"]}}
    assert [meaning_of(tmp_path / f"{name}.npz") for name in "abc"] == [named, named, {}]
