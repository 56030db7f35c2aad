"""GATv2 against PyG's GATv2Conv."""

import pytest
import torch
from torch_geometric.nn import GATv2Conv

import weft


@pytest.mark.parametrize(("heads", "concat", "share"), [(1, True, False), (3, True, True), (2, False, False)])
def test_equals_pyg(make_graph, assert_same, heads, concat, share):
    conv = GATv2Conv(5, 4, heads=heads, concat=concat, share_weights=share, add_self_loops=False)
    assert_same(weft.nn.GATv2(5, 4, heads=heads, concat=concat, share_weights=share), conv, make_graph(5))


def test_equals_pyg_with_edge_features(make_graph, assert_same):
    graph = make_graph(5, edge_width=3)
    attr = torch.empty_like(graph.edge_data["attr"])
    attr[graph.edge_ids.long()] = graph.edge_data["attr"]
    conv = GATv2Conv(5, 4, heads=2, edge_dim=3, add_self_loops=False)
    assert_same(weft.nn.GATv2(5, 4, heads=2, edge_features=3), conv, graph, attr)
