"""MoNet against PyG's GMMConv."""

import torch
from torch_geometric.nn import GMMConv

import weft


def test_equals_pyg_with_edge_coordinates(make_graph, assert_same):
    graph = make_graph(5, edge_width=3)
    attr = torch.empty_like(graph.edge_data["attr"])
    attr[graph.edge_ids.long()] = graph.edge_data["attr"]
    assert_same(
        weft.nn.MoNet(5, 4, kernels=2, edge_features=3), GMMConv(5, 4, dim=3, kernel_size=2), graph, attr
    )


def test_equals_pyg_with_coordinates_from_degrees(make_graph, assert_same, edges):
    graph = make_graph(5)
    degree = graph.in_degree().double()
    scale = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
    coordinates = torch.stack([scale[edges[0]], scale[edges[1]]], dim=1)
    assert_same(weft.nn.MoNet(5, 4), GMMConv(5, 4, dim=2, kernel_size=3), graph, coordinates)
