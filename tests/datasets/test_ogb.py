"""OGB folders in their three layouts, written here as the archives hold them."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.datasets.ogb import ogb
from weft.errors import FormatError


def table(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode()))


def write_split(folder: Path) -> None:
    for name, ids in (("train", [0, 1]), ("valid", [2]), ("test", [3])):
        table(folder / f"{name}.csv.gz", [[node] for node in ids])


def write_csv(root: Path) -> Path:
    raw = root / "raw"
    table(raw / "edge.csv.gz", [[0, 1], [1, 2], [3, 0]])
    table(raw / "num-node-list.csv.gz", [[4]])
    table(raw / "num-edge-list.csv.gz", [[3]])
    table(raw / "node-feat.csv.gz", [[0.5, -1], [1e-3, 2], [0, 0], [3, 4]])
    table(raw / "node-label.csv.gz", [[1], [0], [2], [1]])
    write_split(root / "split" / "time")
    return root


def test_csv_layout_is_read(tmp_path: Path) -> None:
    graph = ogb(write_csv(tmp_path))
    assert graph.edge_index.tolist() == [[0, 1, 3], [1, 2, 0]]
    np.testing.assert_allclose(graph.x, [[0.5, -1], [1e-3, 2], [0, 0], [3, 4]])
    assert graph.x.dtype.is_floating_point
    assert graph.y.tolist() == [1, 0, 2, 1]
    assert graph.train_mask.tolist() == [True, True, False, False]
    assert graph.val_mask.tolist() == [False, False, True, False]
    assert graph.test_mask.tolist() == [False, False, False, True]


def test_raw_folder_itself_is_read_with_the_split_beside_it(tmp_path: Path) -> None:
    graph = ogb(write_csv(tmp_path) / "raw")
    assert graph.train_mask.tolist() == [True, True, False, False]


def test_missing_labels_several_labels_and_edge_features_are_read(tmp_path: Path) -> None:
    write_csv(tmp_path)
    table(tmp_path / "raw" / "edge-feat.csv.gz", [[1, 2], [3, 4], [5, 6]])
    table(tmp_path / "raw" / "node-label.csv.gz", [[1], [0], ["nan"], [1]])
    graph = ogb(tmp_path)
    assert graph.y.tolist() == [1, 0, -1, 1]
    order = graph.edge_ids.long()
    np.testing.assert_array_equal(graph.edge_data["attr"], np.array([[1, 2], [3, 4], [5, 6]])[order])
    table(tmp_path / "raw" / "node-label.csv.gz", [[1, 0], [0, 0], [1, 1], [0, 1]])
    assert ogb(tmp_path).multilabel


def test_one_of_several_splits_is_chosen_by_name(tmp_path: Path) -> None:
    write_split(write_csv(tmp_path) / "split" / "random")
    assert ogb(tmp_path, split="random").train_mask.sum() == 2
    with pytest.raises(FormatError, match="several splits; set split to one of: random, time"):
        ogb(tmp_path)
    with pytest.raises(FormatError, match="no split 'tmie' of: random, time"):
        ogb(tmp_path, split="tmie")


def test_npz_layout_is_read(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    edges = np.array([[0, 1, 3], [1, 2, 0]])
    counts = {"num_nodes_list": np.array([4]), "num_edges_list": np.array([3])}
    np.savez(raw / "data.npz", edge_index=edges, node_feat=np.eye(4, dtype=np.float16), **counts)
    np.savez(raw / "node-label.npz", node_label=np.array([[1.0], [np.nan], [0.0], [2.0]]))
    graph = ogb(tmp_path)
    assert graph.edge_index.tolist() == edges.tolist()
    assert graph.y.tolist() == [1, -1, 0, 2]
    np.testing.assert_array_equal(graph.x, np.eye(4))


def write_typed(root: Path) -> Path:
    raw = root / "raw"
    table(raw / "triplet-type-list.csv.gz", [["author", "writes", "paper"], ["paper", "cites", "paper"]])
    table(raw / "num-node-dict.csv.gz", [["author", "paper"], [2, 4]])
    writes, cites = raw / "relations" / "author___writes___paper", raw / "relations" / "paper___cites___paper"
    table(writes / "edge.csv.gz", [[0, 3], [1, 0]])
    table(writes / "num-edge-list.csv.gz", [[2]])
    table(cites / "edge.csv.gz", [[1, 2]])
    table(raw / "node-feat" / "paper" / "node-feat.csv.gz", [[1, 0], [0, 1], [1, 1], [0, 0]])
    table(raw / "node-label" / "paper" / "node-label.csv.gz", [[5], [0], [1], [1]])
    write_split(root / "split" / "time" / "paper")
    return root


def test_typed_layout_is_read(tmp_path: Path) -> None:
    graph = ogb(write_typed(tmp_path))
    assert graph.node_types == ["author", "paper"]
    assert graph.edge_types == [("author", "writes", "paper"), ("paper", "cites", "paper")]
    assert graph.target_type == "paper"
    assert graph.num_nodes == 6
    assert graph.y.tolist() == [5, 0, 1, 1]
    assert list(graph.x) == ["paper"]
    assert graph.train_mask.tolist() == [True, True, False, False]
    papers = graph.target_rows.start
    assert {tuple(edge) for edge in graph.edge_index.T.tolist()} == {
        (0, papers + 3),
        (1, papers + 0),
        (papers + 1, papers + 2),
    }


def test_edge_of_unknown_type_is_refused(tmp_path: Path) -> None:
    table(write_typed(tmp_path) / "raw" / "triplet-type-list.csv.gz", [["author", "writes", "book"]])
    with pytest.raises(FormatError, match=r"triplet-type-list\.csv\.gz: author,writes,book"):
        ogb(tmp_path)


@pytest.mark.parametrize("name", ["num-node-list", "edge", "node-feat", "node-label"])
def test_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    file = write_csv(tmp_path) / "raw" / f"{name}.csv.gz"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(FormatError, match=rf"{name}\.csv\.gz: "):
        ogb(tmp_path)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("edge", [[0, 1], [1, 2, 3], [3, 0]], "not a table of numbers"),
        ("edge", [[0, 1, 2], [1, 2, 3]], "expected 2 columns, found 3"),
        ("edge", [[0, 1], [1, 2]], "expected 3 rows, one for each edge"),
        ("edge", [["source", "target"], [1, 2]], "column 0 is not numeric"),
        ("edge", [[0.5, 1], [1, 2], [1, 2]], "expected whole numbers for node ids"),
        ("node-feat", [[1, 2]], "expected 4 rows, one for each node, found 1"),
        ("node-label", [[1], [0], [0.5], [1]], "expected whole numbers for labels"),
        (
            "node-label",
            [[1, 0], [0, 0], ["nan", 1], [0, 1]],
            "1 of 8 labels is neither 0 nor 1, the first at",
        ),
        ("node-label", [[1, 0], [0, 2], [3, 1], [0, 1]], "2 of 8 labels are neither 0 nor 1, .* at node 1"),
        ("num-node-list", [[4], [5]], "describes 2 graphs"),
    ],
)
def test_wrong_table_is_named(tmp_path: Path, name: str, rows: list[list[object]], message: str) -> None:
    table(write_csv(tmp_path) / "raw" / f"{name}.csv.gz", rows)
    with pytest.raises(FormatError, match=rf"{name}\.csv\.gz: {message}"):
        ogb(tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    (write_csv(tmp_path) / "raw" / "num-node-list.csv.gz").unlink()
    with pytest.raises(FormatError, match=r"num-node-list\.csv\.gz: no such file"):
        ogb(tmp_path)
    write_csv(tmp_path)
    (tmp_path / "split" / "time" / "valid.csv.gz").unlink()
    with pytest.raises(FormatError, match=r"valid\.csv\.gz: no such file"):
        ogb(tmp_path)


def test_pickled_split_is_not_opened(tmp_path: Path) -> None:
    write_csv(tmp_path)
    (tmp_path / "split" / "time" / "train.csv.gz").unlink()
    (tmp_path / "split" / "time" / "split_dict.pt").write_bytes(b"\x80\x02.")
    with pytest.raises(FormatError, match=r"split_dict\.pt: is a pickle, which weft never opens"):
        ogb(tmp_path)


def test_split_naming_an_unknown_node_is_refused(tmp_path: Path) -> None:
    table(write_csv(tmp_path) / "split" / "time" / "test.csv.gz", [[4]])
    with pytest.raises(FormatError, match=r"test\.csv\.gz: node ids must lie in 0 … 3, found 4"):
        ogb(tmp_path)
