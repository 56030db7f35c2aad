"""Bad input: one line that names what is wrong, where, and by how much."""

from typing import Any

import numpy as np
import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Graph, SparseFeatures

EDGES = [[0, 1, 2], [1, 2, 0]]
NAN = float("nan")


def mask(*nodes: int) -> torch.Tensor:
    chosen = torch.zeros(3, dtype=torch.bool)
    chosen[list(nodes)] = True
    return chosen


BAD: list[tuple[str, Any, dict[str, Any], str]] = [
    ("negative id", [[0, -1, -2], [1, 2, 0]], {}, r"edge 1 has source -1, nodes are 0 … 2 .*2 such edges"),
    (
        "id too large",
        EDGES,
        {"num_nodes": 2},
        r"edge 2 has source 2, nodes are 0 … 1 \(2 nodes; 1 such edge\)",
    ),
    ("target too large", [[0], [9]], {"num_nodes": 4}, "edge 0 has target 9, nodes are 0 … 3"),
    ("huge id", np.array([[0], [2**62]]), {"num_nodes": 4}, "target 4,611,686,018,427,387,904"),
    (
        "id beyond 64 bits",
        np.array([[0], [2**63]], np.uint64),
        {},
        "holds 9,223,372,036,854,775,808, more than",
    ),
    ("transposed", [[0, 1], [1, 2], [2, 0]], {}, r"shape \(2, E\).* got \(3, 2\); pass its transpose"),
    ("one dimension", [0, 1], {}, r"shape \(2, E\).* got \(2,\)"),
    ("float ids", [[0.0, 1.0], [1.0, 0.0]], {}, r"must hold integers, got torch.float32"),
    ("boolean ids", [[True], [False]], {}, r"must hold integers, got torch.bool"),
    ("string ids", np.array([["a"], ["b"]]), {}, "edge_index must be an array of numbers"),
    ("ragged ids", [[0, 1], [1]], {}, "edge_index must be an array of numbers"),
    ("no nodes", [[], []], {}, "at least one node, got num_nodes=0"),
    ("zero nodes asked for", [[], []], {"num_nodes": 0}, "at least one node, got num_nodes=0"),
    ("number of nodes as text", EDGES, {"num_nodes": "3"}, "num_nodes must be a whole number, got '3'"),
    ("number of nodes as float", EDGES, {"num_nodes": 3.0}, "num_nodes must be a whole number, got 3.0"),
    (
        "features for some nodes",
        EDGES,
        {"x": np.eye(2)},
        r"edge 2 has source 2, nodes are 0 … 1 \(2 nodes, as many as x has rows; 1 such edge\)",
    ),
    ("labels for some nodes", EDGES, {"y": [0, 1]}, r"\(2 nodes, as many as y has rows; 1 such edge\)"),
    ("labels in words", EDGES, {"y": ["a", "b", "a"]}, r"y holds 'a': labels are numbers .*numpy\.unique"),
    (
        "labels in an array of words",
        EDGES,
        {"y": np.array(["b", "a", "b"])},
        "y holds 'b': labels are numbers",
    ),
    ("negative number of nodes", [[], []], {"num_nodes": -3}, "got num_nodes=-3"),
    ("short features", EDGES, {"num_nodes": 3, "x": np.eye(2)}, "x has 2 rows, but there are 3 nodes"),
    ("features in a line", EDGES, {"x": np.ones(3)}, r"shape \(num_nodes, num_features\), got \(3,\)"),
    ("complex features", EDGES, {"x": np.eye(3) * 1j}, "real numbers, got torch.complex128"),
    (
        "NaN features",
        EDGES,
        {"x": [[0.0, 1.0], [0.0, NAN], [2.0, NAN]]},
        r"x holds 2 values that are NaN or infinite, in column 1 \(first at row 1\)",
    ),
    (
        "infinite features",
        EDGES,
        {"x": [[0.0, 1.0], [float("inf"), NAN], [2.0, 1.0]]},
        "2 values that are NaN or infinite, in column 0 and in 1 more column",
    ),
    (
        "sparse NaN",
        EDGES,
        {"x": torch.tensor([[0.0, 1.0], [0.0, NAN], [0.0, 0.0]]).to_sparse()},
        r"1 value that is NaN or infinite, in column 1 \(first at row 1\)",
    ),
    (
        "sparse columns out of range",
        EDGES,
        {"x": SparseFeatures(torch.tensor([0, 1, 1, 1]), torch.tensor([7]), torch.ones(1), (3, 4))},
        r"x: not valid CSR: pointers must ascend, columns be 0 … 3",
    ),
    ("short labels", EDGES, {"num_nodes": 3, "y": [0, 1]}, "y has 2 rows, but there are 3 nodes"),
    ("label below -1", EDGES, {"y": [0, -2, 1]}, "label -2 at node 1; labels are 0 … 65,535, or -1"),
    ("infinite value", EDGES, {"y": [0.5, float("inf"), 1.0]}, "y holds inf at node 1: expected numbers"),
    ("infinite label", EDGES, {"y": [0.0, float("inf"), 1.0]}, "y holds inf at node 1"),
    ("columns of labels", EDGES, {"y": [[0, 1], [2, 0], [0, 0]]}, "must be 0 or 1; it holds 2"),
    ("labels in a cube", EDGES, {"y": np.zeros((3, 2, 2))}, r"got \(3, 2, 2\)"),
    ("integer mask", EDGES, {"train_mask": [0, 1, 1]}, r"train_mask must be boolean, got torch.int64"),
    ("short mask", EDGES, {"num_nodes": 3, "val_mask": [True]}, "val_mask has 1 row, but there are 3 nodes"),
    (
        "several splits",
        EDGES,
        {"train_mask": np.ones((3, 4), bool)},
        r"several splits; choose one .*\[:, 0\]",
    ),
    ("empty train mask", EDGES, {"train_mask": mask()}, "train_mask chooses none of the 3 nodes"),
    ("empty test mask", EDGES, {"test_mask": mask()}, "test_mask chooses none of the 3 nodes; leave it out"),
    (
        "overlap",
        EDGES,
        {"train_mask": mask(0, 2), "test_mask": mask(1, 2)},
        "train_mask and test_mask overlap: 1 in both, the first is node 2",
    ),
    (
        "overlap of the others",
        EDGES,
        {"val_mask": mask(0), "test_mask": mask(0)},
        "val_mask and test_mask overlap",
    ),
    (
        "training without labels",
        EDGES,
        {"train_mask": mask(0, 2), "y": [1, 0, -1]},
        "train_mask holds nodes without a label: 1, the first is node 2; take them out of it",
    ),
    ("short weights", EDGES, {"edge_weight": [1.0]}, "edge_weight has 1 row, but there are 3 edges"),
    (
        "wide weights",
        EDGES,
        {"edge_weight": np.ones((3, 2))},
        r"edge_weight must have shape \(E,\), got \(3, 2\)",
    ),
    ("NaN weights", EDGES, {"edge_weight": [1.0, NAN, 1.0]}, "edge_weight holds 1 value that is NaN.*row 1"),
    ("short edge features", EDGES, {"edge_attr": np.ones((2, 2))}, "edge_attr has 2 rows"),
    ("NaN edge features", EDGES, {"edge_attr": [[1.0], [1.0], [NAN]]}, "edge_attr holds 1 value.*column 0"),
    ("short times", EDGES, {"edge_time": [1]}, "edge_time has 1 row, but there are 3 edges"),
    ("short relations", EDGES, {"edge_type": [1]}, "edge_type has 1 row"),
    ("negative relation", EDGES, {"edge_type": [0, -1, 0]}, "edge_type holds -1"),
    (
        "relation too large",
        EDGES,
        {"edge_type": [0, 5, 0], "num_relations": 3},
        "edge_type holds 5, relations are 0 … 2; set num_relations",
    ),
    ("fractional relation", EDGES, {"edge_type": [0.0, 1.0, 0.0]}, "edge_type must be whole numbers"),
    ("relations without types", EDGES, {"num_relations": 3}, "num_relations=3 needs edge_type"),
    ("repeated ids", EDGES, {"node_ids": ["a", "b", "a"]}, "id 'a' stands at rows 0 and 2"),
    ("mixed ids", EDGES, {"node_ids": ["a", 1, "b"]}, "all strings or all whole numbers, got int, str"),
    ("missing ids", EDGES, {"node_ids": ["a", None, "b"]}, "got NoneType, str"),
    ("short ids", EDGES, {"num_nodes": 3, "node_ids": [1, 2]}, "2 ids for 3 nodes"),
]


@pytest.mark.parametrize(
    ("edges", "data", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_input_is_one_line(edges: Any, data: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as raised:
        Graph.from_edges(edges, **data)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, InputError)
    assert raised.value.exit_code == 2


def test_finite_values_whose_sum_overflows_are_fine() -> None:
    x = torch.full((3, 2), torch.finfo(torch.float32).max)
    assert Graph.from_edges(EDGES, x=x).x is x


def test_unlabelled_nodes_may_be_in_the_test_split() -> None:
    graph = Graph.from_edges(EDGES, y=[0, 1, -1], train_mask=mask(0), test_mask=mask(2))
    assert graph.num_classes == 2


def test_numbers_below_zero_are_targets_and_nan_among_whole_numbers_is_unknown() -> None:
    numbers = Graph.from_edges(EDGES, y=[-1.5, 0.5, -2.0], train_mask=mask(0, 2))
    assert numbers.y.tolist() == [-1.5, 0.5, -2.0]
    assert Graph.from_edges(EDGES, y=[2.0, NAN, 1.0], train_mask=mask(0, 2)).has_values


def test_check_can_be_switched_off() -> None:
    x = torch.tensor([[NAN], [1.0], [2.0]])
    assert Graph.from_edges(EDGES, x=x, check=False).x is x


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_edges_of_any_integer_type_are_taken(dtype: Any) -> None:
    assert Graph.from_edges(np.array(EDGES, dtype=dtype)).edge_index.tolist() == EDGES


def test_sparse_features_of_another_length_are_refused() -> None:
    with pytest.raises(GraphError, match="x has 2 rows, but there are 3 nodes"):
        Graph.from_edges(EDGES, num_nodes=3, x=SparseFeatures.from_dense(torch.eye(2)))


def test_the_name_of_a_relation_says_nothing_about_its_data() -> None:
    timed, weighty = ("a", "has_attribute", "a"), ("a", "has_weight", "a")
    graph = Graph.from_types(
        {"a": {"num_nodes": 2}}, {timed: {"edge_index": [[0], [1]], "edge_time": [2**40 + 1]}}
    )
    assert graph.edge_data["time"].tolist() == [2**40 + 1]
    graph = Graph.from_types(
        {"a": {"num_nodes": 2}}, {weighty: {"edge_index": [[0], [1]], "edge_attr": [[1.0, 2.0, 3.0]]}}
    )
    assert graph.edge_data["attr"].tolist() == [[1, 2, 3]]
    with pytest.raises(GraphError, match=r"edge_weight of .'a', 'has_weight', 'a'. must have shape"):
        Graph.from_types(
            {"a": {"num_nodes": 2}}, {weighty: {"edge_index": [[0], [1]], "edge_weight": [[1.0, 2.0]]}}
        )


def test_relations_that_nobody_can_hold_are_refused() -> None:
    edges = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(GraphError, match=r"1,000,000,000,000 relations for 3 edges"):
        Graph.from_edges(edges, num_nodes=1, edge_type=torch.zeros(3).int(), num_relations=10**12)
