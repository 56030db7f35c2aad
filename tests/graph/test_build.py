"""A graph is built from what a user has: numbers of nodes, features of any kind, types."""

import numpy as np
import pytest
import torch
from five_edges import EDGES

from weft.errors import GraphError
from weft.graph import Graph, SparseFeatures


def test_numbers_of_nodes_follow_from_data_or_from_edges() -> None:
    assert Graph.from_edges(EDGES).num_nodes == 3
    assert Graph.from_edges(EDGES, y=[0, 1, 0, 1]).num_nodes == 4
    assert Graph.from_edges(EDGES, num_nodes=7).num_nodes == 7
    assert Graph.from_edges(EDGES, node_ids=["a", "b", "c", "d", "e"]).num_nodes == 5


def test_integer_features_become_float32_and_float64_stays() -> None:
    assert Graph.from_edges(EDGES, x=np.ones((3, 2), dtype=np.uint8)).x.dtype == torch.float32
    assert Graph.from_edges(EDGES, x=np.ones((3, 2))).x.dtype == torch.float64


def test_features_share_memory_with_the_array_given() -> None:
    x = np.ones((3, 2), dtype=np.float32)
    graph = Graph.from_edges(EDGES, x=x)
    x[0, 0] = 5
    assert graph.x[0, 0] == 5


def test_read_only_features_are_copied() -> None:
    x = np.ones((3, 2), dtype=np.float32)
    x.flags.writeable = False
    graph = Graph.from_edges(EDGES, x=x)
    graph.x[0, 0] = 5
    assert x[0, 0] == 1


@pytest.mark.parametrize("kind", ["scipy", "coo", "csr", "ours"])
def test_sparse_features_of_any_kind_stay_sparse(kind: str) -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    if kind == "scipy":
        scipy_sparse = pytest.importorskip("scipy.sparse")
        x = scipy_sparse.coo_matrix(dense.numpy())
    else:
        x = {
            "coo": dense.to_sparse(),
            "csr": dense.to_sparse_csr(),
            "ours": SparseFeatures.from_dense(dense),
        }[kind]
    graph = Graph.from_edges(EDGES, x=x)
    assert isinstance(graph.x, SparseFeatures)
    assert graph.x.nnz == 2
    assert torch.equal(graph.x.to_dense(), dense)


def test_typed_graph_has_one_id_space_sorted_by_type() -> None:
    graph = Graph.from_types(
        {
            "author": {"num_nodes": 2},
            "paper": {"x": np.eye(3), "y": [0, 1, 0], "train_mask": torch.tensor([True] * 3)},
        },
        {
            ("author", "writes", "paper"): {
                "edge_index": [[0, 1, 1], [0, 1, 2]],
                "edge_weight": [1.0, 2.0, 3.0],
            },
            ("paper", "cites", "paper"): [[0], [1]],
        },
    )
    assert (graph.node_types, graph.node_offsets) == (["author", "paper"], [0, 2, 5])
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [2, 3, 4, 3]]
    assert graph.edge_type is not None
    assert graph.edge_type.tolist() == [0, 0, 1, 0]
    assert (graph.target_type, graph.target_rows) == ("paper", slice(2, 5))
    assert list(graph.x) == ["paper"]
    assert graph.block().type_ranges() == {"author": slice(0, 2), "paper": slice(2, 5)}
    # the relation without weights counts with weight one
    assert graph.given_edge_data()["weight"].tolist() == [1, 2, 3, 1]


def test_typed_edges_out_of_range_name_the_relation() -> None:
    with pytest.raises(
        GraphError, match=r"edge_index of \('a', 'to', 'b'\): edge 0 has target 2, nodes are 0 … 1"
    ):
        Graph.from_types({"a": {"num_nodes": 3}, "b": {"num_nodes": 2}}, {("a", "to", "b"): [[2], [2]]})
    with pytest.raises(GraphError, match="names node type 'c'; there are: a"):
        Graph.from_types({"a": {"num_nodes": 3}}, {("a", "to", "c"): [[2], [2]]})


def test_a_type_may_say_that_it_has_no_features() -> None:
    nodes = {"a": {"x": None, "y": torch.tensor([0, 1])}}
    graph = Graph.from_types(nodes=nodes, edges={("a", "r", "a"): {"edge_index": [[0], [1]]}})
    assert (graph.num_nodes, graph.x) == (2, None)
