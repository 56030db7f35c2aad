"""GCN against PyG's GCNConv and by hand."""

import torch
from torch_geometric.nn import GCNConv

import weft


def test_equals_pyg_with_self_loops_in_the_graph(make_graph, assert_same):
    graph = make_graph(5)
    conv = GCNConv(5, 3)
    looped = graph.remove_self_loops().drop_duplicates().add_self_loops()
    assert_same(weft.nn.GCN(5, 3), conv, looped)


def test_equals_pyg_without_self_loops(make_graph, assert_same):
    assert_same(weft.nn.GCN(5, 3), GCNConv(5, 3, add_self_loops=False), make_graph(5))


def test_equals_pyg_with_edge_weights(make_graph, assert_same, edges):
    weight = torch.randint(1, 16, (edges.shape[1],)).double() / 8  # sums are exact in float32, as degrees are
    graph = make_graph(3, edge_weight=weight)
    assert_same(weft.nn.GCN(3, 6), GCNConv(3, 6, add_self_loops=False), graph, weight)


def test_initial_weights_lie_in_glorots_range():
    layer = weft.nn.GCN(30, 70)
    bound = (6 / 100) ** 0.5
    assert 0.9 * bound < layer.lin.weight.abs().max() <= bound
    assert not layer.bias.any()


def test_input_aggregate_is_computed_once():
    graph = weft.Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=3, x=torch.eye(3))
    layer, block = weft.nn.GCN(3, 2), graph.block()
    layer(block, graph.x)
    first = [answer.result for answer in block._memory._answers]
    layer(block, graph.x)
    assert len(first) == 1
    assert block._memory._answers[0].result is first[0]
