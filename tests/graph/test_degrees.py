"""Degrees of the whole graph, of a relation, and weighted."""

import torch
from five_edges import EDGES

from weft.graph import Graph


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


def test_weighted_degrees_keep_double_precision() -> None:
    weight = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    graph = Graph.from_edges([[0, 1], [1, 1]], num_nodes=2, edge_weight=weight)
    assert graph.in_degree(weighted=True)[1].item() == 1.0 + 1e-9
    assert graph.block().in_degree(weighted=True)[1].item() == 1.0 + 1e-9
