"""R-GCN against PyG's RGCNConv."""

import pytest
import torch
from torch_geometric.nn import RGCNConv

import weft


@pytest.mark.parametrize("bases", [None, 2])
def test_equals_pyg(make_graph, assert_same, edges, bases):
    kinds = torch.arange(edges.shape[1]) % 4  # relation 4 has no edge
    graph = make_graph(5, edge_type=kinds, num_relations=5)
    conv = RGCNConv(5, 3, num_relations=5, num_bases=bases)
    # RGCNConv creates its sum in float32, which its own addition then widens.
    assert_same(weft.nn.RGCN(5, 3, num_relations=5, bases=bases), conv, graph, kinds)


def test_sparse_features_give_what_dense_ones_give():
    torch.manual_seed(0)
    edges, kinds = torch.randint(0, 12, (2, 40)), torch.randint(0, 3, (40,))
    graph = weft.Graph.from_edges(edges, num_nodes=12, x=torch.eye(12), edge_type=kinds)
    layer = weft.nn.RGCN(12, 4, num_relations=3, bases=2)
    sparse = weft.SparseFeatures.from_dense(graph.x)
    expected = layer(graph.block(), graph.x)
    for _ in range(2):
        torch.testing.assert_close(layer(graph.block(), sparse), expected)
    other = weft.SparseFeatures.from_dense(2 * graph.x)
    torch.testing.assert_close(layer(graph.block(), other), layer(graph.block(), 2 * graph.x))


def test_one_hot_nodes_equal_pygs_node_embeddings():
    edges, kinds = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.tensor([0, 1, 0, 1])
    conv, layer = RGCNConv(4, 3, num_relations=2), weft.nn.RGCN(4, 3, num_relations=2)
    layer.load_state_dict(conv.state_dict())
    graph = weft.Graph.from_edges(edges, num_nodes=4, x=torch.eye(4).to_sparse_csr(), edge_type=kinds)
    torch.testing.assert_close(layer(graph.block(), graph.x), conv(None, edges, kinds))
