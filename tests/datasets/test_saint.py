"""GraphSAINT folders, written here as scipy and json write them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from weft.datasets.saint import saint
from weft.errors import FormatError, GraphError

X = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 5.0], [2.0, 7.0]])


def write_folder(folder: Path, **replaced: Any) -> Path:
    adjacency = scipy.sparse.csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency)
    np.save(folder / "feats.npy", replaced.get("feats", X))
    classes = replaced.get("class_map", {"0": 1, "1": 0, "2": 1, "3": 2})
    (folder / "class_map.json").write_text(json.dumps(classes))
    roles = replaced.get("role", {"tr": [0, 1], "va": [2], "te": [3]})
    (folder / "role.json").write_text(json.dumps(roles))
    return folder


def test_folder_is_read_as_it_is(tmp_path: Path) -> None:
    graph = saint(write_folder(tmp_path))
    assert graph.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    np.testing.assert_array_equal(graph.x, X)
    assert graph.y.tolist() == [1, 0, 1, 2]
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert graph.val_mask.tolist() == [False, False, True, False]
    assert graph.test_mask.tolist() == [False, False, False, True]


def test_features_are_standardised_over_the_training_nodes(tmp_path: Path) -> None:
    graph = saint(write_folder(tmp_path), standardise=True)
    # Column 0: mean 2, deviation 1 over nodes 0 and 1. Column 1 is constant there: only its mean goes.
    np.testing.assert_allclose(graph.x, [[-1, 0], [1, 0], [7, 0], [0, 2]])


def test_lists_of_classes_make_several_labels_a_node(tmp_path: Path) -> None:
    classes = {"0": [1, 0, 1], "1": [0, 0, 0], "2": [0, 1, 0], "3": [1, 1, 1]}
    graph = saint(write_folder(tmp_path, class_map=classes))
    assert graph.multilabel
    assert graph.num_classes == 3
    np.testing.assert_array_equal(graph.y, list(classes.values()))


def test_node_without_a_list_of_labels_is_refused(tmp_path: Path) -> None:
    classes = {"0": [1, 0, 1], "1": [0, 0, 0], "3": [1, 1, 1]}
    with pytest.raises(FormatError, match="node 2 has no list of labels"):
        saint(write_folder(tmp_path, class_map=classes))


def test_node_without_a_class_has_no_label(tmp_path: Path) -> None:
    assert saint(write_folder(tmp_path, class_map={"0": 1, "1": 0, "2": 1})).y.tolist() == [1, 0, 1, -1]


@pytest.mark.parametrize("name", ["feats.npy", "class_map.json", "role.json", "adj_full.npz"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_folder(tmp_path) / name).unlink()
    with pytest.raises(FormatError, match=f"{name}: no such file"):
        saint(tmp_path)


@pytest.mark.parametrize("name", ["feats.npy", "class_map.json", "role.json", "adj_full.npz"])
def test_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    file = write_folder(tmp_path) / name
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(FormatError, match=name):
        saint(tmp_path)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"feats": X[:3]}, r"feats\.npy: expected 4 rows, one for each node, found 3"),
        ({"feats": X[0]}, r"feats\.npy: expected numbers \[nodes, features\]"),
        ({"feats": np.array([[1, None]] * 4, object)}, r"feats\.npy: holds Python objects"),
        ({"feats": X * np.nan}, "NaN"),
        ({"role": {"tr": [0]}}, r"role\.json: lacks va"),
        ({"role": {"tr": [0, 9], "va": [1], "te": [2]}}, r"role\.json: node ids must lie in 0 … 3, found 9"),
        (
            {"class_map": {"0": [1, 0], "1": [1]}},
            r"class_map\.json: node ids must be whole numbers and label",
        ),
        ({"class_map": {"8": 1}}, r"class_map\.json: expected a class number"),
        ({"class_map": []}, r"class_map\.json: expected an object"),
    ],
)
def test_wrong_contents_are_named(tmp_path: Path, replaced: dict[str, Any], message: str) -> None:
    with pytest.raises((FormatError, GraphError), match=message):
        saint(write_folder(tmp_path, **replaced))


@pytest.mark.parametrize("name", ["indptr", "indices", "shape"])
def test_ends_of_edges_are_not_rounded(tmp_path: Path, name: str) -> None:
    file = write_folder(tmp_path) / "adj_full.npz"
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, name: arrays[name] + 0.9})
    with pytest.raises(
        FormatError, match=rf"adj_full\.npz: {name} must be a list of whole numbers, got float64"
    ):
        saint(tmp_path)


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ({"0": 1.9, "1": 0, "2": 1, "3": 2}, "expected whole numbers for classes"),
        ({"0": 1, "00": 0, "2": 1, "3": 2}, "node ids must be whole numbers, got '00'"),
    ],
)
def test_classes_and_nodes_are_not_rounded_or_merged(tmp_path: Path, classes: Any, told: str) -> None:
    with pytest.raises(FormatError, match=rf"class_map\.json: {told}"):
        saint(write_folder(tmp_path, class_map=classes))
