"""Planetoid folders, written here with the standard serializer as the originals were."""

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from weft.datasets.planetoid import planetoid
from weft.errors import FormatError, GraphError

# Seven nodes: 0 and 1 to train, 2 and 3 known, 4 … 6 for the test. Node 5 is missing from test.index, as
# some are in citeseer: nothing is known of it. Features are the node's number, labels its parity.
FEATURES = {node: [node + 1.0, 0.0, node % 2] for node in (0, 1, 2, 3, 6, 4)}
GRAPH = {0: [1, 1, 2], 1: [0], 2: [2, 3], 3: [6], 4: [0], 6: []}


def write_folder(folder: Path, protocol: int = 2, **replaced: Any) -> Path:
    def features(nodes: list[int]) -> Any:
        return scipy.sparse.csr_matrix(np.array([FEATURES[node] for node in nodes], np.float32))

    def labels(nodes: list[int]) -> Any:
        return np.eye(2, dtype=np.int32)[[node % 2 for node in nodes]]

    parts: dict[str, Any] = {
        "x": features([0, 1]),
        "allx": features([0, 1, 2, 3]),
        "tx": features([6, 4]),
        "y": labels([0, 1]),
        "ally": labels([0, 1, 2, 3]),
        "ty": labels([6, 4]),
        "graph": collections.defaultdict(list, GRAPH),
    }
    folder.mkdir(exist_ok=True)
    for name, value in (parts | replaced).items():
        (folder / f"ind.tiny.{name}").write_bytes(pickle.dumps(value, protocol))
    (folder / "ind.tiny.test.index").write_text("6\n4\n")
    return folder


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_nodes_get_their_own_features_labels_and_split(tmp_path: Path, protocol: int) -> None:
    graph = planetoid(write_folder(tmp_path, protocol))
    assert graph.num_nodes == 7
    dense = graph.x.to_dense()
    for node, row in FEATURES.items():
        assert dense[node].tolist() == row
    assert graph.y.tolist() == [0, 1, 0, 1, 0, -1, 0]
    assert graph.train_mask.nonzero().flatten().tolist() == [0, 1]
    assert graph.val_mask.nonzero().flatten().tolist() == [2, 3]
    assert graph.test_mask.nonzero().flatten().tolist() == [4, 6]


def test_node_missing_from_the_test_index_is_isolated_and_empty(tmp_path: Path) -> None:
    graph = planetoid(write_folder(tmp_path))
    assert graph.x.to_dense()[5].tolist() == [0.0, 0.0, 0.0]
    assert graph.in_degree()[5] == 0


def test_node_with_no_class_marked_has_no_label(tmp_path: Path) -> None:
    marked = np.array([[1, 0], [0, 1], [1, 0], [0, 0]], np.int32)
    assert planetoid(write_folder(tmp_path, ally=marked)).y.tolist()[:4] == [0, 1, 0, -1]


def test_every_pair_stands_once_in_each_direction_without_self_loops(tmp_path: Path) -> None:
    edges = {tuple(edge) for edge in planetoid(write_folder(tmp_path)).edge_index.T.tolist()}
    pairs = {(0, 1), (0, 2), (2, 3), (3, 6), (0, 4)}
    assert edges == pairs | {(target, source) for source, target in pairs}


def test_raw_folder_below_the_path_is_found(tmp_path: Path) -> None:
    write_folder(tmp_path / "raw")
    assert planetoid(tmp_path).num_nodes == 7


def test_one_of_several_data_sets_is_chosen_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path)
    for file in sorted(tmp_path.iterdir()):
        (tmp_path / file.name.replace("tiny", "other")).write_bytes(file.read_bytes())
    assert planetoid(tmp_path, dataset="other").num_nodes == 7
    with pytest.raises(FormatError, match="several data sets; set dataset to one of: other, tiny"):
        planetoid(tmp_path)
    with pytest.raises(FormatError, match="no data set 'cora' of: other, tiny"):
        planetoid(tmp_path, dataset="cora")


def test_missing_file_is_named(tmp_path: Path) -> None:
    (write_folder(tmp_path) / "ind.tiny.ally").unlink()
    with pytest.raises(FormatError, match=r"ind\.tiny\.ally: no such file"):
        planetoid(tmp_path)
    write_folder(tmp_path)
    (tmp_path / "ind.tiny.test.index").unlink()
    with pytest.raises(FormatError, match=r"ind\.tiny\.test\.index: no such file"):
        planetoid(tmp_path)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    file = write_folder(tmp_path) / "ind.tiny.allx"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(FormatError, match=r"ind\.tiny\.allx: damaged"):
        planetoid(tmp_path)


TWICE: tuple[object, ...] = ()
for _ in range(40):  # to make an array of it is to go through 2 ** 40 values
    TWICE = (TWICE, TWICE)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("allx", np.zeros((4, 3)), "expected a CSR matrix, got ndarray"),
        ("tx", scipy.sparse.csr_matrix(np.ones((2, 5))), "3 columns, but tx has 5"),
        ("tx", scipy.sparse.csr_matrix(np.ones((3, 3))), "expected 3 rows, one for each row of tx, found 2"),
        ("ally", np.zeros((3, 2), np.int32), "labels for 6 nodes"),
        ("ally", {}, "expected a matrix of one-hot labels"),
        ("ally", np.ones((4, 2), np.int32), "marks one class by 1, or none"),
        ("ty", np.full((2, 2), np.nan), "marks one class by 1, or none"),
        ("ally", np.full((4, 2), 0.5), "marks one class by 1, or none"),
        ("graph", [1, 2], "expected a dictionary of neighbour lists"),
        ("graph", {0: [99]}, "node ids must lie in 0 … 6"),
        ("graph", {0: ["one"]}, "node ids must be whole numbers"),
        ("graph", {0: [TWICE]}, "node ids must be whole numbers"),
        (
            "graph",
            dict.fromkeys(range(300), [1] * 300),
            "90,000 neighbours, far more than its bytes can tell",
        ),
    ],
)
def test_wrong_contents_are_named(tmp_path: Path, part: str, value: object, message: str) -> None:
    with pytest.raises((FormatError, GraphError), match=message):
        planetoid(write_folder(tmp_path, **{part: value}))


@pytest.mark.parametrize("part", ["allx", "tx"])
@pytest.mark.parametrize(
    ("array", "change", "told"),
    [
        ("indptr", lambda held: held + (held == 0), "indptr does not describe"),
        ("indptr", lambda held: held[::-1].copy(), "indptr does not describe"),
        ("indptr", lambda held: held.astype(np.float64), "indptr must be a list of whole numbers"),
        ("indices", lambda held: held + 0.5, "indices must be a list of whole numbers"),
        ("data", lambda held: np.append(held, held[0]), "values for"),
    ],
    ids=["start", "falling", "fractions", "columns", "values"],
)
def test_matrices_whose_arrays_do_not_fit_are_not_read_as_others(
    tmp_path: Path, part: str, array: str, change: Any, told: str
) -> None:
    nodes = [0, 1, 2, 3] if part == "allx" else [6, 4]
    matrix = scipy.sparse.csr_matrix(np.array([FEATURES[node] for node in nodes], np.float32))
    setattr(matrix, array, change(getattr(matrix, array)))
    with pytest.raises(FormatError, match=rf"ind\.tiny\.{part}: .*{told}"):
        planetoid(write_folder(tmp_path, **{part: matrix}))


def test_a_test_node_that_is_known_already_is_refused(tmp_path: Path) -> None:
    (write_folder(tmp_path) / "ind.tiny.test.index").write_text("6\n3\n")
    with pytest.raises(FormatError, match=r"test\.index: node 3 is one of the 4 of allx, too"):
        planetoid(tmp_path)


@pytest.mark.parametrize("text", ["", "6\nsix\n", "4\n4\n", "-1\n6\n"])
def test_wrong_test_index_is_named(tmp_path: Path, text: str) -> None:
    (write_folder(tmp_path) / "ind.tiny.test.index").write_text(text)
    with pytest.raises(FormatError, match=r"ind\.tiny\.test\.index: expected"):
        planetoid(tmp_path)


@pytest.mark.parametrize("node", [10**10, 10**12, 4 * 10**18, 10**30])
def test_an_id_that_no_memory_could_hold_nodes_up_to_is_refused(tmp_path: Path, node: int) -> None:
    (write_folder(tmp_path) / "ind.tiny.test.index").write_text(f"{node}\n4\n")
    with pytest.raises(
        FormatError, match=r"ind\.tiny\.test\.index: (a graph of .* would take|expected one node id)"
    ):
        planetoid(tmp_path)


@pytest.mark.parametrize("part", ["graph", "x", "ally"])
def test_values_that_are_nested_a_hundred_thousand_times_are_one_line(tmp_path: Path, part: str) -> None:
    levels = 100_000
    (write_folder(tmp_path) / f"ind.tiny.{part}").write_bytes(
        b"\x80\x02}K\x00" + b"]" * levels + b"a" * (levels - 1) + b"s."
    )
    with pytest.raises(FormatError, match=rf"ind\.tiny\.{part}: ") as caught:
        planetoid(tmp_path)
    assert "\n" not in str(caught.value)
