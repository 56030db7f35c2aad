"""Edges and their data in canonical order, and back in the user's."""

import torch
from five_edges import EDGES
from generated_graphs import assert_same, graphs
from hypothesis import given, settings

from weft.graph import Graph


def test_edge_index_comes_back_in_the_users_order() -> None:
    graph = Graph.from_edges(EDGES)
    before = graph.edge_index
    assert graph.indptr.dtype == torch.int64  # the CSR is built here
    assert before.tolist() == EDGES
    assert graph.edge_index.tolist() == EDGES
    assert graph.edge_index.dtype == torch.int64


def test_edge_data_is_in_canonical_order_and_returns_in_the_users() -> None:
    graph = Graph.from_edges(EDGES, edge_weight=[0.0, 1.0, 2.0, 3.0, 4.0], edge_time=[5, 6, 7, 8, 9])
    assert graph.edge_data["weight"].tolist() == [2.0, 0.0, 3.0, 1.0, 4.0]
    assert graph.given_edge_data()["time"].tolist() == [5, 6, 7, 8, 9]


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
