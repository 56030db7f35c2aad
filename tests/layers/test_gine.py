"""GINE against PyG's GINEConv."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GINEConv

import weft


def test_equals_pyg(make_graph, assert_same):
    graph = make_graph(5, edge_width=3)
    attr = torch.empty_like(graph.edge_data["attr"])
    attr[graph.edge_ids.long()] = graph.edge_data["attr"]
    inner = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4))
    conv = GINEConv(inner, eps=0.3, train_eps=True, edge_dim=3)
    assert_same(weft.nn.GINE(5, 4, edge_features=3, hidden=7, eps=0.3, train_eps=True), conv, graph, attr)


def test_graph_without_edge_features_is_refused_with_the_alternative():
    with pytest.raises(weft.InputError, match="the graph has no edge_attr; use 'gin'"):
        weft.nn.GINE(2, 2, edge_features=0)
