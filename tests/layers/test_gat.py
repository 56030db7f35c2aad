"""GAT against PyG's GATConv and by hand."""

import pytest
import torch
from torch_geometric.nn import GATConv

import weft
from weft.layers.gat import head_columns


@pytest.mark.parametrize(
    ("width", "heads", "concat"), [(5, 1, True), (5, 3, True), (20, 3, True), (5, 2, False)]
)
def test_equals_pyg(make_graph, assert_same, width, heads, concat):
    conv = GATConv(width, 4, heads=heads, concat=concat, add_self_loops=False)
    assert_same(weft.nn.GAT(width, 4, heads=heads, concat=concat), conv, make_graph(width))


def test_equals_pyg_with_edge_features(make_graph, assert_same, edges):
    graph = make_graph(5, edge_width=3)
    attr = torch.empty_like(graph.edge_data["attr"])
    attr[graph.edge_ids.long()] = graph.edge_data["attr"]
    conv = GATConv(5, 4, heads=2, edge_dim=3, add_self_loops=False)
    assert_same(weft.nn.GAT(5, 4, heads=2, edge_features=3), conv, graph, attr)


def test_equals_pyg_with_self_loops_in_the_graph(make_graph, assert_same):
    graph = make_graph(5).remove_self_loops().add_self_loops()
    assert_same(weft.nn.GAT(5, 4, heads=2), GATConv(5, 4, heads=2), graph)


def test_sparse_features_give_what_dense_ones_give(make_graph):
    graph = make_graph(6)
    layer = weft.nn.GAT(6, 4, heads=2).double()
    sparse = weft.SparseFeatures.from_dense(graph.x)
    torch.testing.assert_close(layer(graph.block(), sparse), layer(graph.block(), graph.x))


def test_head_columns_sum_each_head():
    a, x = torch.randn(1, 3, 4), torch.randn(5, 12)
    torch.testing.assert_close(x @ head_columns(a), (x.view(5, 3, 4) * a).sum(-1))


def test_attention_dropout_follows_the_clock_and_stops_in_eval():
    torch.manual_seed(0)
    graph = weft.Graph.from_edges(torch.randint(0, 10, (2, 60)), num_nodes=10, x=torch.randn(10, 4))
    layer, block = weft.nn.GAT(4, 3, heads=2, attention_dropout=0.5), graph.block()
    block.clock = torch.tensor([1, 0, 0])
    first = layer(block, graph.x)
    assert torch.equal(first, layer(block, graph.x))
    block.clock = torch.tensor([1, 0, 1])
    assert not torch.equal(first, layer(block, graph.x))
    layer.eval()
    assert not torch.equal(first, layer(block, graph.x))
    assert torch.equal(layer(block, graph.x), layer(block, graph.x))


def test_graph_without_edge_features_is_refused_in_one_line():
    graph = weft.Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=2, x=torch.ones(2, 2))
    with pytest.raises(
        weft.InputError, match="GAT was built with edge features but the graph has no edge_attr"
    ):
        weft.nn.GAT(2, 2, edge_features=3)(graph.block(), graph.x)
