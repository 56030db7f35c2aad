"""`.npz` files: each shape of features, labels and splits, what bad files say, and the real graphs."""

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.foreign_forms import TYPED

from weft.datasets.npz import npz
from weft.errors import DataNote, FormatError, GraphError
from weft.graph.graph import Graph
from weft.graph.known import Known
from weft.graph.sparse import SparseFeatures
from weft.meaning import meaning_of
from weft.tasks.split import split_pairs

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

EDGES = np.array([[0, 1, 2], [1, 2, 3]], np.int32)
SPARSE = {
    "x_data": np.array([2, 7], np.uint8),
    "x_indices": np.array([1, 0], np.int32),
    "x_indptr": np.array([0, 1, 1, 1, 2]),
    "x_shape": np.array([4, 3]),
}
MASKS = {f"{name}_mask": np.eye(4, dtype=bool)[row] for row, name in enumerate(("train", "val", "test"))}


def written(folder: Path, **arrays: Any) -> Path:
    path = folder / "graph.npz"
    np.savez(path, **arrays)
    return path


def test_column_beyond_32_bits_stays_that_column(tmp_path: Path) -> None:
    many = {"x_indices": np.array([2**33 + 1, 0]), "x_shape": np.array([4, 2**34])}
    graph = npz(written(tmp_path, edge_index=EDGES, num_nodes=4, **SPARSE | many))
    assert isinstance(graph.x, SparseFeatures)
    assert graph.x.indices.tolist() == [2**33 + 1, 0]


def test_ends_of_relations_are_found_among_thousands_of_types(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(2000)]
    edges = {f"edge_{name}_{name}": np.zeros((2, 1), np.int64) for name in names[:100]}
    path = written(tmp_path, node_types=np.array(names), num_nodes=np.ones(2000, np.int64), **edges)
    began = time.process_time()
    assert len(npz(path).edge_types) == 100
    assert time.process_time() - began < 20  # all pairs of types for each relation take minutes


def test_sparse_features_stay_sparse(tmp_path: Path) -> None:
    graph = npz(written(tmp_path, edge_index=EDGES, num_nodes=4, **SPARSE))
    assert isinstance(graph.x, SparseFeatures)
    assert graph.x.to_dense().tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 0], [7, 0, 0]]


def test_dense_features_labels_masks_and_edge_data_are_read(tmp_path: Path) -> None:
    y = np.array([0, -1, 1, 1], np.int16)
    weight = np.array([3.0, 2.0, 1.0], np.float32)
    kind = np.array([0, 2, 1], np.int8)
    path = written(
        tmp_path, edge_index=EDGES, num_nodes=4, x=np.eye(4), y=y, edge_weight=weight, edge_type=kind, **MASKS
    )
    graph = npz(path)
    np.testing.assert_array_equal(graph.x, np.eye(4))
    assert graph.y.tolist() == [0, -1, 1, 1]
    assert graph.test_mask.tolist() == [False, False, True, False]
    assert graph.num_relations == 3
    np.testing.assert_array_equal(graph.edge_data["weight"], weight[graph.edge_ids.long()])


def test_graph_without_features_has_none(tmp_path: Path) -> None:
    assert npz(written(tmp_path, edge_index=EDGES, num_nodes=5)).x is None


def test_one_of_several_splits_is_chosen_by_number(tmp_path: Path) -> None:
    several = {
        f"{name}_masks": np.roll(np.eye(4, dtype=bool), row, 0)
        for row, name in enumerate(("train", "val", "test"))
    }
    path = written(tmp_path, edge_index=EDGES, num_nodes=4, y=np.zeros(4, np.int16), **several)
    assert npz(path).train_mask.tolist() == [True, False, False, False]
    assert npz(path, split=2).train_mask.tolist() == [False, False, True, False]
    assert npz(path, split=2).val_mask.tolist() == [False, True, False, False]
    with pytest.raises(FormatError, match=r"graph\.npz: no split 4; it has 0 … 3"):
        npz(path, split=4)


def test_splits_without_validation_nodes_are_read(tmp_path: Path) -> None:
    several = {"train_masks": np.eye(4, dtype=bool), "test_masks": np.eye(4, dtype=bool)[::-1]}
    path = written(tmp_path, edge_index=EDGES, num_nodes=4, y=np.zeros(4, np.int16), **several)
    for graph in (npz(path), npz(path, split=0)):
        assert graph.train_mask.tolist() == [True, False, False, False]
        assert graph.val_mask is None
        assert graph.test_mask.tolist() == [False, False, False, True]


def typed_arrays() -> dict[str, Any]:
    return {
        **{name: array.copy() for name, array in TYPED.items()},
        "node_types": np.array(["a", "p", "p_x"]),
        "num_nodes": np.array([2, 3, 1]),
        "edge_p_p_x": np.array([[1], [0]]),
        "edge_p_x_p": np.array([[0], [2]]),
        "train_40": np.array([0, 2]),
        "test_40": np.array([1]),
    }


def test_several_types_are_read(tmp_path: Path) -> None:
    graph = npz(written(tmp_path, **typed_arrays()))
    assert graph.node_types == ["a", "p", "p_x"]
    relations = {("a", "to", "p"), ("p", "cites", "p"), ("p", "to", "p_x"), ("p_x", "to", "p")}
    assert set(graph.edge_types) == relations
    assert graph.target_type == "p"
    assert graph.x["a"].shape == (2, 5)
    assert graph.x["p"].to_dense().tolist() == [[0, 0], [0, 1.5], [0, 0]]
    assert graph.train_mask.tolist() == [True, False, True]
    assert npz(written(tmp_path, **typed_arrays()), split=20).train_mask.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": np.array("z")}, "target 'z' is none of the node types"),
        ({"num_nodes": np.array([2])}, "num_nodes must hold 3 counts"),
        ({"edge_q_z": EDGES}, "edge_q_z names no two of the node types"),
        ({"train_40": np.array([7])}, "node ids must lie in 0 … 2, found 7"),
    ],
)
def test_wrong_typed_file_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=rf"graph\.npz: {message}"):
        npz(written(tmp_path, **(typed_arrays() | changes)))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"edges": EDGES}, "no array 'edge_index'; it holds: edges"),
        ({"edge_index": np.array([[0, None], [1, 2]], object)}, r"holds Python objects \(a pickle\)"),
        ({"edge_index": EDGES.T}, "transpose"),
        ({"edge_index": EDGES, "num_nodes": 2}, "edge 2 has source 2"),
        ({"edge_index": EDGES, "num_nodes": np.array([4, 4])}, "num_nodes must be one whole number"),
        ({"edge_index": EDGES, "num_nodes": 4, "x": np.full((4, 1), np.nan)}, "NaN"),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_indptr": np.array([0, 2])},
            "x: indptr does not describe",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_indices": np.array([1, 3])},
            "x: column numbers must lie in",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_data": np.array([1])},
            "x: 1 values for 2 column numbers",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, "x_data": SPARSE["x_data"]},
            "sparse features 'x' lack x_indptr",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_shape": np.array([4])},
            r"x: shape must be two whole numbers, rows and columns, got int64 \(1,\)",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_shape": np.array([4.5, 3.0])},
            "x: shape must be two whole numbers",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_indices": np.array([1.9, 0.0])},
            r"x: indices must be a list of whole numbers, got float64 \(2,\)",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_indptr": np.array([0, 1, 1, 1, 2.5])},
            r"x: indptr must be a list of whole numbers, got float64 \(5,\)",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_data": np.array(["2", "7"])},
            r"x: data must be a list of numbers, got <U1 \(2,\)",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, **SPARSE, "x_indices": np.zeros((2, 2), np.int64)},
            r"x: indices must be a list of whole numbers, got int64 \(2, 2\)",
        ),
        (
            {
                "edge_index": EDGES,
                "num_nodes": 4,
                "node_type": np.array([0, 1, 0, 1]),
                "node_types": np.array(["a", "a"]),
            },
            r"node_types must hold a name of its own for each type, got \['a', 'a'\]",
        ),
        (
            {
                "node_types": np.array(["a", "a"]),
                "num_nodes": np.array([4, 4]),
                "edge_a_a": EDGES,
            },
            r"node_types must hold a name of its own for each type, got \['a', 'a'\]",
        ),
        (
            {"edge_index": EDGES, "num_nodes": 4, "train_masks": np.array(True)},
            r"train_masks must be \(splits, nodes\), got shape \(\)",
        ),
    ],
)
def test_wrong_file_is_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises((FormatError, GraphError), match=rf"graph\.npz: .*{message}") as caught:
        npz(written(tmp_path, **arrays))
    assert "\n" not in str(caught.value)


def test_truncated_empty_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, edge_index=EDGES, num_nodes=4)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[: len(whole) // 2], b"", b"\x80\x04]\x94.", b"PK\x03\x04 nonsense"):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"graph\.npz: "):
            npz(path)
    path.unlink()
    with pytest.raises(FormatError, match=r"graph\.npz: no such file"):
        npz(path)


def test_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, edge_index=np.zeros((2, 1000), np.int32), num_nodes=4)
    raw = bytearray(path.read_bytes())
    raw[4000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=r"graph\.npz: edge_index: truncated or damaged .*CRC"):
        npz(path)


# What ../shared/data/README.md states: nodes, edges, features, classes, split.
REAL = {
    "cora": (2708, 10556, 1433, 7, (140, 500, 1000)),
    "citeseer": (3327, 9104, 3703, 6, (120, 500, 1000)),
    "pubmed": (19717, 88648, 500, 3, (60, 500, 1000)),
    "coauthor_cs": (18333, 163788, 6805, 15, None),
    "tolokers": (11758, 519000, 10, 2, None),
    "wordnet30": (117659, 364552, 2048, 45, None),
    "fb100_cornell5": (18660, 1581554, 4735, 2, None),
    "blogcatalog3_multilabel": (10312, 333983, None, 39, None),
    "rdf_aifb": (8285, 29043, None, 4, (140, None, 36)),
    "web_google": (875713, 5105039, None, 0, None),
    "cnr_2000": (325557, 3216152, None, 0, None),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_graph_has_the_stated_counts(name: str) -> None:
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"needs ../shared/data/{name}.npz")
    nodes, edges, features, classes, split = REAL[name]
    graph = npz(path)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (nodes, edges, classes)
    assert (None if graph.x is None else graph.x.shape[1]) == features
    if split is not None:
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
        assert tuple(None if mask is None else int(mask.sum()) for mask in masks) == split
    assert graph.num_relations == {"wordnet30": 26, "rdf_aifb": 45}.get(name, 1)
    assert graph.multilabel == (name == "blogcatalog3_multilabel")


@pytest.mark.skipif(not (DATA / "hetero_dblp.npz").exists(), reason="needs ../shared/data/hetero_dblp.npz")
def test_real_typed_graph_has_the_stated_counts() -> None:
    graph = npz(DATA / "hetero_dblp.npz")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (26128, 119783, 4)
    assert {kind: x.shape[1] for kind, x in graph.x.items()} == {"a": 334, "p": 4231, "t": 50}
    assert graph.target_type == "a"
    assert int(graph.train_mask.sum()) == 240
    assert int(npz(DATA / "hetero_dblp.npz", split=20).train_mask.sum()) == 80


@pytest.mark.skipif(not (DATA / "tolokers.npz").exists(), reason="needs ../shared/data/tolokers.npz")
def test_real_graph_with_ten_splits_gives_each() -> None:
    first, other = npz(DATA / "tolokers.npz"), npz(DATA / "tolokers.npz", split=9)
    assert bool((first.train_mask == npz(DATA / "tolokers.npz", split=0).train_mask).all())
    assert bool((first.train_mask != other.train_mask).any())


def test_arrays_of_unknown_names_are_told_beside_those_that_were_taken(tmp_path: Path) -> None:
    arrays = {"edge_index": EDGES, "num_nodes": 4, "weight": np.ones(3), "rating": np.ones(3), **MASKS}
    told = r"took edge_index, num_nodes, test_mask, train_mask, val_mask; left out rating, weight, names that"
    with pytest.warns(DataNote, match=told):
        npz(written(tmp_path, **arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        several = {f"{name}s": masks[None] for name, masks in MASKS.items()}
        npz(written(tmp_path, edge_index=EDGES, num_nodes=4, **MASKS, **several, **SPARSE))
        npz(written(tmp_path, **typed_arrays()))


@pytest.mark.parametrize("named", [False, True])
def test_node_type_makes_a_graph_of_several_types(tmp_path: Path, named: bool) -> None:
    """Whatever the order of nodes, each edge joins the nodes that it did and keeps its data."""
    kind, edges = np.array([1, 0, 1, 0, 0], np.int8), np.array([[0, 1, 4, 3, 2], [1, 4, 0, 2, 3]])
    arrays = {
        "edge_index": edges, "num_nodes": 5, "node_type": kind, "edge_type": np.array([0, 1, 1, 0, 1]),
        "edge_weight": np.arange(5.0), "x": np.arange(5.0)[:, None] * 10, "y": np.array([1, -1, 0, -1, -1]),
        "train_mask": np.array([True, False, False, False, False]), "class_names": np.array(["no", "yes"]),
    }  # fmt: skip
    arrays |= {"node_types": np.array(["paper", "author", "nobody"])} if named else {}
    graph = npz(written(tmp_path, **arrays))
    paper, author = ("paper", "author") if named else ("0", "1")
    assert graph.node_types == ([paper, author, "nobody"] if named else [paper, author])
    assert graph.target_type == author
    assert graph.y.tolist() == [1, 0]
    assert graph.train_mask.tolist() == [True, False]
    assert "y" not in graph.node_data[paper]
    numbers = np.concatenate([graph.node_ids[name].values for name in graph.node_types]).astype(int)
    assert numbers.tolist() == [1, 3, 4, 0, 2]
    features = np.concatenate([graph.node_data[name]["x"].flatten() for name in (paper, author)])
    assert features.tolist() == (numbers * 10.0).tolist()
    src, dst = graph.edge_index.numpy()
    weight = np.empty(5)
    weight[graph.edge_ids.numpy()] = graph.edge_data["weight"].flatten()
    assert sorted(zip(numbers[src], numbers[dst], weight)) == sorted(zip(*edges, np.arange(5.0)))
    triples = {(paper, "1", paper), (author, "0", paper), (paper, "1", author), (paper, "0", author)}
    assert set(graph.edge_types) == triples | {(author, "1", paper)}
    assert meaning_of(tmp_path / "graph.npz") == {"classes": {"node": ["no", "yes"]}}


def test_bad_node_type_and_class_names_say_what_was_expected(tmp_path: Path) -> None:
    base = {"edge_index": EDGES, "num_nodes": 4, "y": np.array([0, 1, 2, 0])}
    with pytest.raises(FormatError, match=r"node_type must hold 4 whole numbers.*int64 \(3,\)"):
        npz(written(tmp_path, **base, node_type=np.zeros(3, np.int64)))
    with pytest.raises(FormatError, match=r"node_types names 1 types, node_type has 0 … 1"):
        npz(written(tmp_path, **base, node_type=np.array([0, 1, 0, 1]), node_types=np.array(["a"])))
    with pytest.raises(FormatError, match="class_names must hold a word for each of the 3 classes"):
        npz(written(tmp_path, **base, class_names=np.array(["a", "b"])))


def test_an_id_that_no_memory_could_hold_nodes_up_to_is_named(tmp_path: Path) -> None:
    far = np.array([[0, 10**12], [1, 2]])
    with pytest.raises(
        GraphError, match=r"graph\.npz: edge_index holds the id 1,000,000,000,000: a graph of"
    ):
        npz(written(tmp_path, edge_index=far))
    with pytest.raises(GraphError, match="num_nodes is 1,000,000,000,000: a graph"):
        Graph.from_edges(far, num_nodes=10**12)
    with pytest.raises(GraphError, match="an edge names the 'a' 1,000,000,000,000: a graph"):
        Graph.from_types({"a": {}}, {("a", "to", "a"): far})


def test_what_may_be_predicted_of_edges_is_edge_data(tmp_path: Path) -> None:
    edges = np.array([[2, 1, 0], [3, 2, 1]], np.int32)
    data = {
        "edge_label": np.array([1, 0, -1], np.int8),
        "edge_rating": np.array([-10, 4, 1], np.int8),
        "edge_year": np.array([1999, 2000, 2001], np.int16),
        "edge_split": np.array([0, 1, 2], np.uint8),
    }
    graph = npz(written(tmp_path, edge_index=edges, num_nodes=4, **data))
    given = graph.given_edge_data()
    assert {name: value.tolist() for name, value in given.items()} == {
        name.removeprefix("edge_"): value.tolist() for name, value in data.items()
    }
    assert given["rating"].is_floating_point()
    _, pairs = split_pairs(graph, label="rating")
    found = {name: some.y.tolist() for name, some in pairs.items() if some.y is not None}
    assert found == {"train": [-10], "val": [4], "test": [1]}
    typed = npz(written(tmp_path, edge_index=edges, node_type=np.array([1, 0, 0, 1]), num_nodes=4, **data))
    assert set(typed.edge_data) == {"label", "rating", "year", "split"}


TRIPLES = {
    "train": np.array([[0, 1, 2], [2, 0, 1], [1, 1, 0]], np.int32),
    "test": np.array([[3, 0, 0]], np.int32),
    "entity": np.array([b"00a", b"00b", "ünï".encode(), b"d", b"unseen"]),
    "relation": np.array([b"likes", b"is part of", b"never"]),
}


def test_triples_are_a_graph_of_named_relations_with_a_given_split(tmp_path: Path) -> None:
    graph = npz(written(tmp_path, **TRIPLES))
    assert graph.edge_types == [("entity", name, "entity") for name in ("likes", "is part of", "never")]
    assert graph.num_nodes == 5
    assert graph.node_ids["entity"].find(["ünï", "unseen"]).tolist() == [2, 4]
    messages, pairs = split_pairs(graph)
    test = pairs["test"]
    assert test.relation is not None
    assert (test.src.tolist(), test.relation.tolist(), test.dst.tolist()) == ([3], [0], [0])
    assert len(pairs["train"]) == 3
    assert messages.num_edges == 3
    plain = npz(written(tmp_path, **{name: TRIPLES[name] for name in ("train", "test")}))
    assert plain.edge_types == [("entity", str(number), "entity") for number in range(2)]
    assert plain.num_nodes == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test": np.zeros((2, 2), int)}, r"test must hold whole numbers \(n, 3\)"),
        ({"relation": np.array([b"likes"])}, "relation must hold a word of its own for each"),
        ({"relation": np.array([b"likes", b"likes"])}, "relation must hold a word of its own for each"),
        ({"entity": np.array([b"a"])}, "nodes are 0 … 0"),
    ],
    ids=["shape", "few", "same", "entities"],
)
def test_triples_that_cannot_be_are_refused(tmp_path: Path, changed: Any, message: str) -> None:
    with pytest.raises((FormatError, GraphError), match=message):
        npz(written(tmp_path, **{**TRIPLES, **changed}))


@pytest.mark.parametrize(
    ("name", "counts"), [("wn18rr", [86_835, 3_034, 3_134]), ("fb15k237", [272_115, 17_535, 20_466])]
)
def test_real_knowledge_graphs_have_their_official_split(name: str, counts: list[int]) -> None:
    path = DATA / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)  # texts of entities are left out
        graph = npz(path)
    messages, pairs = split_pairs(graph, undirected=False)
    assert [len(some) for some in pairs.values()] == counts
    joined = Known.of(messages, relations=False)
    for some in (pairs["val"], pairs["test"]):
        assert not joined.hits(some.src, some.dst).any()
        assert not joined.hits(some.dst, some.src).any()


def test_ratings_by_time_leave_the_edges() -> None:
    path = DATA / "bitcoin_otc.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)
        graph = npz(path)
    times = graph.given_edge_data()["time"]
    val, test = int(times[int(0.8 * len(times))]), int(times[int(0.9 * len(times))])
    messages, pairs = split_pairs(graph, by="time", val=val, test=test, label="rating")
    assert sum(map(len, pairs.values())) == graph.num_edges
    assert set(messages.edge_data) == {"time"}
    assert int(messages.edge_data["time"].max()) < val


LISTENED: dict[str, Any] = {
    "edge_user_artist": np.array([[0, 0, 1], [0, 1, 1]], np.int32),
    "edge_artist_entity": np.array([[0], [2]], np.int32),
    "edge_weight": np.array([5, 1, 7], np.int32),
    "entity_triples": np.array([[0, 0, 1], [2, 1, 3]], np.int32),
    "relation": np.array([b"made.by", b"lives in"]),
    "user": np.array([b"ann", b"bo"]),
    "artist": np.array(["11", "12", "13"]),
    "num_entities": np.array(5),
    "artist_year": np.array([1990, 2000, 2010], np.int16),
    **{f"x_artist_{name.removeprefix('x_')}": value for name, value in SPARSE.items()},
}
LISTENED |= {"x_artist_indptr": np.array([0, 1, 1, 2]), "x_artist_shape": np.array([3, 3])}


def test_arrays_named_by_types_are_a_typed_graph_with_named_nodes(tmp_path: Path) -> None:
    graph = npz(written(tmp_path, **LISTENED))
    assert graph.node_types == ["user", "artist", "entity"]
    assert graph.node_offsets == [0, 2, 5, 10]
    triples = [("entity", "made.by", "entity"), ("entity", "lives in", "entity")]
    assert graph.edge_types == [("user", "to", "artist"), ("artist", "to", "entity"), *triples]
    assert graph.node_ids["artist"].find(["13", "11"]).tolist() == [2, 0]
    assert graph.node_ids["user"].find(["bo"]).tolist() == [1]
    assert isinstance(graph.node_data["artist"]["x"], SparseFeatures)
    assert graph.node_data["artist"]["year"].tolist() == [1990, 2000, 2010]
    assert sorted(graph.edge_data["weight"][graph.edge_type == 0].tolist()) == [1.0, 5.0, 7.0]
    ends = {(int(src), int(dst)) for src, dst in graph.edge_index.T}
    assert ends == {(0, 2), (0, 3), (1, 3), (2, 7), (5, 6), (7, 8)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge_weight": np.zeros(4)}, "edge_weight holds 4 values, and no relation has as many edges"),
        ({"entity_triples": np.zeros((2, 2), int)}, r"entity_triples must hold whole numbers \(n, 3\)"),
        ({"relation": np.array([b"one"])}, "relation must hold a word of its own"),
        ({"user": np.array([b"ann"])}, "nodes are 0 … 0"),
    ],
)
def test_arrays_named_by_types_that_do_not_fit_are_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises((FormatError, GraphError), match=message):
        npz(written(tmp_path, **{**LISTENED, **changed}))


@pytest.mark.parametrize(("name", "nodes"), [("lastfm", 28890), ("acl_papers", 152909)])
def test_real_files_named_by_types_are_read_without_a_note(name: str, nodes: int) -> None:
    path = DATA / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert npz(path).num_nodes == nodes
