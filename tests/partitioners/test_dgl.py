"""DGL's partition folders: JSON and plain arrays are read, the rest is refused with what is needed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.errors import FormatError, RecipeError
from weft.graph import Graph
from weft.partitioners import partition

GRAPH = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]], num_nodes=5)


def write(folder: Path, node_map: Any, **other: Any) -> Path:
    told: dict[str, Any] = {
        "graph_name": "g",
        "part_method": "metis",
        "num_parts": 2,
        "halo_hops": 1,
        "node_map": node_map,
        "num_nodes": 5,
        "num_edges": 4,
        "ntypes": {"_N": 0},
        "part-0": {"node_feats": "part0/node_feat.dgl", "part_graph": "part0/graph.dgl"},
        "part-1": {"node_feats": "part1/node_feat.dgl", "part_graph": "part1/graph.dgl"},
    }
    file = folder / "g.json"
    file.write_text(json.dumps(told | other))
    return file


def test_ranges_with_original_ids_give_the_parts_of_the_users_nodes(tmp_path: Path) -> None:
    write(tmp_path, {"_N": [[0, 2], [2, 5]]})
    np.save(tmp_path / "orig_nids.npy", np.array([4, 1, 0, 3, 2]))
    made = partition(GRAPH, 2, name="dgl", path=str(tmp_path))
    assert made.parts.tolist() == [1, 0, 1, 1, 0]
    assert (made.name, made.cuts) == ("dgl", "nodes")


def test_a_graph_in_the_new_ids_needs_no_mapping(tmp_path: Path) -> None:
    file = write(tmp_path, {"_N": [[0, 2], [2, 5]]})
    assert partition(GRAPH, 2, name="dgl", path=file, renumbered=True).parts.tolist() == [0, 0, 1, 1, 1]


def test_a_map_as_an_array_gives_the_parts_directly(tmp_path: Path) -> None:
    file = write(tmp_path, "/somewhere/else/node_map.npy")
    np.save(tmp_path / "node_map.npy", np.array([0, 1, 0, 1, 1]))
    assert partition(GRAPH, 2, name="dgl", path=file).parts.tolist() == [0, 1, 0, 1, 1]


def test_types_are_matched_by_name(tmp_path: Path) -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 2}, "b": {"num_nodes": 3}}, {("a", "to", "b"): [[0, 1], [0, 2]]}
    )
    file = write(tmp_path, {"b": [[0, 1], [1, 3]], "a": [[0, 1], [1, 2]]})
    np.save(tmp_path / "orig_nids_a.npy", np.array([1, 0]))
    np.save(tmp_path / "orig_nids_b.npy", np.array([2, 1, 0]))
    assert partition(graph, 2, name="dgl", path=file).parts.tolist() == [1, 0, 1, 1, 0]


def test_ranges_alone_are_refused_with_what_is_needed(tmp_path: Path) -> None:
    file = write(tmp_path, {"_N": [[0, 2], [2, 5]]})
    with pytest.raises(FormatError, match=r"return_mapping=True\).*orig_nids\.npy.*renumbered=true"):
        partition(GRAPH, 2, name="dgl", path=file)


@pytest.mark.parametrize(
    ("node_map", "other", "told"),
    [
        ({"_N": [[0, 2], [2, 4]]}, {}, "do not cover its 5 nodes once"),
        ({"_N": [[0, 3], [2, 5]]}, {}, "do not cover its 5 nodes once"),
        ({"_N": "nonsense"}, {}, "do not cover its 5 nodes once"),
        ({"paper": [[0, 2], [2, 5]]}, {}, "no node type 'node'; it has: paper"),
        ({"_N": [[0, 2], [2, 5]]}, {"num_nodes": 6}, "is of 6 nodes, the graph has 5"),
        ({"_N": [[0, 2], [2, float("inf")]]}, {"num_nodes": None}, "do not cover its 5 nodes once"),
        ({"_N": [[0, 2], [2, 5]]}, {"num_parts": 3, "part-2": {}}, "has 3 parts, 2 were asked for"),
        ({"_N": [[0, 2], [2, 5]]}, {"num_parts": 3}, "not the description of a DGL partition"),
        ("node_map.npy", {}, "does not exist"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, node_map: Any, other: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError, match=told):
        partition(GRAPH, 2, name="dgl", path=write(tmp_path, node_map, **other), renumbered=True)


def test_pickled_arrays_and_binary_files_are_not_opened(tmp_path: Path) -> None:
    file = write(tmp_path, "node_map.npy")
    np.save(tmp_path / "node_map.npy", np.array([0, "x", None, 1, 1], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="Python objects \\(a pickle\\), which weft never opens"):
        partition(GRAPH, 2, name="dgl", path=file)
    (tmp_path / "graph.dgl").write_bytes(b"\x80\x04\x95binary")
    with pytest.raises(FormatError, match=r"\.dgl and \.pt files are not read"):
        partition(GRAPH, 2, name="dgl", path=tmp_path / "graph.dgl")


def test_mappings_that_are_no_permutation_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, {"_N": [[0, 2], [2, 5]]})
    np.save(tmp_path / "orig_nids.npy", np.array([4, 1, 0, 3, 3]))
    with pytest.raises(FormatError, match="each of 5 original ids once"):
        partition(GRAPH, 2, name="dgl", path=file)


def test_a_missing_path_is_asked_for() -> None:
    with pytest.raises(RecipeError, match=r"'dgl' needs the option 'path'; give it with --set path="):
        partition(GRAPH, 2, name="dgl")
