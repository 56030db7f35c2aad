"""The order of edges, in both directions: by destination, relation and source, and back."""

import torch
from five_edges import EDGES
from generated_graphs import adjacency, graphs, typed_graphs
from hypothesis import given, settings

from weft.graph import Graph


def test_edges_are_kept_by_destination_then_source() -> None:
    graph = Graph.from_edges(EDGES)
    assert graph.indptr.tolist() == [0, 1, 2, 5]
    assert graph.indices.tolist() == [2, 0, 0, 1, 2]
    assert graph.edge_ids.tolist() == [2, 0, 3, 1, 4]


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


@settings(deadline=None, max_examples=40)
@given(graph=typed_graphs())
def test_edges_of_a_row_are_sorted_by_relation_then_source(graph: Graph) -> None:
    assert graph.edge_type is not None
    key = (graph.block().edge_dst * 2 + graph.edge_type) * graph.num_nodes + graph.indices
    assert bool((key[1:] >= key[:-1]).all())
