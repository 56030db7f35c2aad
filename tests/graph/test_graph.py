"""Graphs: construction, structure, degrees, data, types."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from generated_graphs import adjacency, assert_same, graphs, typed_graphs
from hypothesis import given, settings
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph import Graph, SparseFeatures

EDGES = [[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]]  # 0→1, 1→2, 2→0, 0→2, 2→2


def test_edges_are_kept_by_destination_then_source() -> None:
    graph = Graph.from_edges(EDGES)
    assert graph.indptr.tolist() == [0, 1, 2, 5]
    assert graph.indices.tolist() == [2, 0, 0, 1, 2]
    assert graph.edge_ids.tolist() == [2, 0, 3, 1, 4]


def test_edge_index_comes_back_in_the_users_order() -> None:
    graph = Graph.from_edges(EDGES)
    before = graph.edge_index
    assert graph.indptr.dtype == torch.int64  # the CSR is built here
    assert before.tolist() == EDGES
    assert graph.edge_index.tolist() == EDGES
    assert graph.edge_index.dtype == torch.int64


def test_relation_comes_before_source_in_the_order_of_edges() -> None:
    graph = Graph.from_edges([[0, 1, 2], [0, 0, 0]], num_nodes=3, edge_type=[1, 1, 0])
    assert graph.indices.tolist() == [2, 0, 1]
    assert graph.edge_type is not None
    assert graph.edge_type.tolist() == [0, 1, 1]
    assert graph.edge_types == [("node", "0", "node"), ("node", "1", "node")]


def test_indices_are_int32_and_pointers_int64() -> None:
    graph = Graph.from_edges(EDGES)
    assert (graph.indices.dtype, graph.edge_ids.dtype, graph.indptr.dtype) == (
        torch.int32,
        torch.int32,
        torch.int64,
    )


def test_both_directions_are_built_once_and_kept() -> None:
    graph = Graph.from_edges(EDGES)
    assert graph.indptr is graph.indptr
    assert graph.transposed is graph.transposed
    assert graph.block().transposed is graph.transposed


def test_edge_data_is_in_canonical_order_and_returns_in_the_users() -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0], edge_time=[5, 6, 7, 8, 9])
    assert graph.edge_data["weight"].tolist() == [2.0, 0.0, 3.0, 1.0, 4.0]
    assert graph.given_edge_data()["time"].tolist() == [5, 6, 7, 8, 9]


def test_a_graph_that_is_asked_by_another_thread_meanwhile_gives_both_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0])
    expected = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0]).edge_data["weight"]
    pool, others = ThreadPoolExecutor(1), []
    build_csr = kernels.build_csr

    def meanwhile(ask: Callable[[], Any]) -> None:
        if threading.current_thread() is threading.main_thread():
            others.append(pool.submit(ask).result(30))

    def slow_build(*args: Any, **options: Any) -> Any:
        meanwhile(lambda: graph.indices)
        return build_csr(*args, **options)

    def slow_ids(graph: Graph) -> Tensor:
        meanwhile(lambda: graph.edge_data["weight"])
        return graph._topology.csr.edge_ids

    with pool, monkeypatch.context() as patch:
        patch.setattr(kernels, "build_csr", slow_build)
        assert torch.equal(graph.indices, others.pop())
        patch.setattr(Graph, "edge_ids", property(slow_ids))
        assert torch.equal(graph.edge_data["weight"], expected)
        assert torch.equal(others.pop(), expected)
    assert graph.edge_index.tolist() == EDGES


def test_numbers_of_nodes_follow_from_data_or_from_edges() -> None:
    assert Graph.from_edges(EDGES).num_nodes == 3
    assert Graph.from_edges(EDGES, y=[0, 1, 0, 1]).num_nodes == 4
    assert Graph.from_edges(EDGES, num_nodes=7).num_nodes == 7
    assert Graph.from_edges(EDGES, node_ids=["a", "b", "c", "d", "e"]).num_nodes == 5


def test_zero_edges_are_legal() -> None:
    for empty in ([[], []], np.zeros((2, 0)), torch.empty(2, 0, dtype=torch.int64)):
        graph = Graph.from_edges(empty, num_nodes=3)
        assert graph.num_edges == 0
        assert graph.block().aggregate(torch.ones(3, 2)).tolist() == [[0, 0]] * 3
        assert graph.in_degree().tolist() == [0, 0, 0]
        assert graph.summary()["isolated_nodes"] == 3


def test_degrees_count_edges_of_the_whole_graph_or_of_one_relation() -> None:
    weight = [1.0, 2.0, 3.0, 4.0, 5.0]
    graph = Graph.from_edges(EDGES, edge_type=[0, 1, 0, 0, 1], edge_weight=weight)
    assert graph.in_degree().tolist() == [1, 1, 3]
    assert graph.out_degree().tolist() == [2, 1, 2]
    assert graph.in_degree(relation=1).tolist() == [0, 0, 2]
    assert graph.out_degree(relation=0).tolist() == [2, 0, 1]
    assert graph.in_degree(weighted=True).tolist() == [3, 1, 11]
    assert graph.out_degree(relation=1, weighted=True).tolist() == [0, 2, 5]
    assert graph.in_degree() is graph.in_degree()


def test_labels_and_masks_describe_the_task() -> None:
    graph = Graph.from_edges(
        EDGES, y=np.array([0, 4, -1], dtype=np.int16), train_mask=np.array([True, True, False])
    )
    assert graph.y is not None
    assert graph.y.dtype == torch.int64
    assert (graph.num_classes, graph.multilabel) == (5, False)
    several = Graph.from_edges(EDGES, y=np.array([[0, 1], [1, 1], [0, 0]], dtype=np.uint8))
    assert several.y is not None
    assert several.y.dtype == torch.float32
    assert (several.num_classes, several.multilabel) == (2, True)
    assert Graph.from_edges(EDGES).num_classes == 0


def test_labels_in_one_column_are_taken_as_labels() -> None:
    graph = Graph.from_edges(EDGES, y=torch.tensor([[0], [2], [1]]))
    assert graph.y is not None
    assert graph.y.tolist() == [0, 2, 1]


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


def test_target_type_can_be_named() -> None:
    nodes = {"a": {"y": [0, 1]}, "b": {"y": [1, 0]}}
    edges = {("a", "to", "b"): [[0], [1]]}
    assert Graph.from_types(nodes, edges).target_type == "a"
    assert Graph.from_types(nodes, edges, target_type="b").target_type == "b"
    with pytest.raises(GraphError, match="'c' is not a node type; there are: a, b"):
        Graph.from_types(nodes, edges, target_type="c")


def test_typed_edges_out_of_range_name_the_relation() -> None:
    with pytest.raises(
        GraphError, match=r"edge_index of \('a', 'to', 'b'\): edge 0 has target 2, nodes are 0 … 1"
    ):
        Graph.from_types({"a": {"num_nodes": 3}, "b": {"num_nodes": 2}}, {("a", "to", "b"): [[2], [2]]})
    with pytest.raises(GraphError, match="names node type 'c'; there are: a"):
        Graph.from_types({"a": {"num_nodes": 3}}, {("a", "to", "c"): [[2], [2]]})


def test_block_is_made_once_and_takes_a_clock() -> None:
    graph = Graph.from_edges(EDGES)
    clock = torch.tensor([1, 2, 3])
    assert graph.block(clock) is graph.block()
    assert graph.block().clock is clock


def test_with_data_replaces_adds_and_removes() -> None:
    graph = Graph.from_edges(EDGES, x=np.eye(3), y=[0, 1, 0])
    changed = graph.with_data(x=np.ones((3, 1)), y=None, age=torch.tensor([1, 2, 3]))
    assert changed.x.shape == (3, 1)
    assert changed.y is None
    assert changed.node_data["node"]["age"].tolist() == [1, 2, 3]
    assert graph.x.shape == (3, 3)
    with pytest.raises(GraphError, match="x has 2 rows, but there are 3 nodes"):
        graph.with_data(x=np.eye(2))


def test_to_changes_the_type_of_features_and_weights_only() -> None:
    graph = Graph.from_edges(EDGES, x=np.eye(3), y=[0, 1, 0], edge_weight=np.ones(5), edge_time=np.arange(5))
    half = graph.to(dtype=torch.bfloat16)
    assert half.x.dtype == half.edge_data["weight"].dtype == torch.bfloat16
    assert half.edge_data["time"].dtype == torch.int64
    assert half.y is not None
    assert half.y.dtype == torch.int64
    assert torch.equal(half.indices, graph.indices)


def test_to_returns_the_graph_itself_when_nothing_changes() -> None:
    graph = Graph.from_edges(EDGES, x=torch.ones(3, 2), edge_weight=[1.0, 2.0, 3.0, 4.0, 5.0])
    assert graph.to() is graph
    assert graph.to(device="cpu") is graph
    assert graph.to(dtype=torch.float32, device=torch.device("cpu")) is graph
    assert graph.to(dtype=torch.float64) is not graph


def test_summary_is_plain_numbers() -> None:
    graph = Graph.from_edges(
        EDGES, num_nodes=4, y=[0, 1, 0, 1], train_mask=torch.tensor([True, False, True, False])
    )
    summary = graph.summary()
    assert summary["num_nodes"] == 4
    assert summary["self_loops"] == 1
    assert summary["isolated_nodes"] == 1
    assert summary["split"] == {"train": 2}
    assert summary["in_degree"]["max"] == 3
    assert summary["in_degree"]["histogram"] == [[0, 1], [1, 2], [2, 1]]


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_csr_equals_the_dense_adjacency_in_both_directions(graph: Graph) -> None:
    dense = adjacency(graph)
    counted = torch.zeros_like(dense)
    for v in range(graph.num_nodes):
        for e in range(int(graph.indptr[v]), int(graph.indptr[v + 1])):
            counted[v, int(graph.indices[e])] += 1
    assert torch.equal(counted, dense)
    transposed = torch.zeros_like(dense)
    indptr, indices, edges = graph.transposed
    edge_dst = graph.block().edge_dst
    for u in range(graph.num_nodes):
        for e in range(int(indptr[u]), int(indptr[u + 1])):
            transposed[u, int(indices[e])] += 1
            assert int(graph.indices[int(edges[e])]) == u
            assert int(edge_dst[int(edges[e])]) == int(indices[e])
    assert torch.equal(transposed, dense.t())
    assert torch.equal(graph.in_degree().double(), dense.sum(1))
    assert torch.equal(graph.out_degree().double(), dense.sum(0))


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_edges_and_their_data_return_in_the_order_given(graph: Graph) -> None:
    edges, data, kinds = graph.edge_index, graph.given_edge_data(), graph.given_edge_type()
    assert graph.indptr[-1] == graph.num_edges  # the CSR is built here
    assert graph.edge_data.keys() == data.keys()
    assert torch.equal(graph.edge_index, edges)
    for name, value in graph.given_edge_data().items():
        assert torch.equal(value, data[name])
    assert kinds is None or torch.equal(kinds, graph.given_edge_type())  # type: ignore[arg-type]
    again = graph.with_edges(edges, kinds, data)
    assert_same(graph, again)


@settings(deadline=None, max_examples=40)
@given(graph=typed_graphs())
def test_edges_of_a_row_are_sorted_by_relation_then_source(graph: Graph) -> None:
    assert graph.edge_type is not None
    key = (graph.block().edge_dst * 2 + graph.edge_type) * graph.num_nodes + graph.indices
    assert bool((key[1:] >= key[:-1]).all())


def test_weighted_degrees_keep_double_precision() -> None:
    weight = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    graph = Graph.from_edges([[0, 1], [1, 1]], num_nodes=2, edge_weight=weight)
    assert graph.in_degree(weighted=True)[1].item() == 1.0 + 1e-9
    assert graph.block().in_degree(weighted=True)[1].item() == 1.0 + 1e-9


def test_a_type_may_say_that_it_has_no_features() -> None:
    nodes = {"a": {"x": None, "y": torch.tensor([0, 1])}}
    graph = Graph.from_types(nodes=nodes, edges={("a", "r", "a"): {"edge_index": [[0], [1]]}})
    assert (graph.num_nodes, graph.x) == (2, None)
