"""SAGE against PyG's SAGEConv and by hand."""

import pytest
import torch
from torch_geometric.nn import SAGEConv

import weft


@pytest.mark.parametrize("widths", [(5, 3), (3, 5)])
@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_equals_pyg(make_graph, assert_same, aggregate, widths):
    assert_same(
        weft.nn.SAGE(*widths, aggregate=aggregate), SAGEConv(*widths, aggr=aggregate), make_graph(widths[0])
    )


def test_max_equals_pyg_where_no_two_edges_tie(make_graph, assert_same):
    # With ties the gradient is ours to define (shared equally); PyG's depends on the version of its backend.
    graph = make_graph(5).drop_duplicates()
    assert_same(weft.nn.SAGE(5, 3, aggregate="max"), SAGEConv(5, 3, aggr="max"), graph)


def test_options_equal_pyg(make_graph, assert_same):
    options = {"normalize": True, "project": True, "root_weight": False, "bias": False}
    assert_same(weft.nn.SAGE(5, 3, **options), SAGEConv(5, 3, **options), make_graph(5))


def test_gcn_averages_over_the_node_and_its_neighbours():
    graph = weft.Graph.from_edges(
        torch.tensor([[0, 1], [2, 2]]), num_nodes=3, x=torch.tensor([[3.0], [6.0], [9.0]])
    )
    layer = weft.nn.SAGE(1, 1, aggregate="gcn", bias=False)
    torch.nn.init.ones_(layer.lin_l.weight)
    assert layer(graph.block(), graph.x).flatten().tolist() == [3.0, 6.0, 6.0]
    assert [name for name, _ in layer.named_parameters()] == ["lin_l.weight"]


@pytest.mark.parametrize("aggregate", ["mean", "sum", "max", "gcn"])
def test_sparse_features_give_what_dense_ones_give(aggregate):
    torch.manual_seed(0)
    x = torch.rand(30, 40) * (torch.rand(30, 40) < 0.1)
    edges = torch.randint(0, 30, (2, 90))
    dense = weft.Graph.from_edges(edges, num_nodes=30, x=x)
    sparse = weft.Graph.from_edges(edges, num_nodes=30, x=x.to_sparse_csr())
    layer = weft.nn.SAGE(40, 8, aggregate=aggregate)
    torch.testing.assert_close(layer(sparse.block(), sparse.x), layer(dense.block(), dense.x))


def test_unknown_aggregate_is_refused_in_one_line():
    with pytest.raises(
        weft.InputError, match="SAGE: aggregate must be one of mean, max, sum, gcn, got 'median'"
    ):
        weft.nn.SAGE(2, 2, aggregate="median")
