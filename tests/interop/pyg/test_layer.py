"""PyG convolutions on blocks: the whole graph's numbers on a part of it, or a refusal with the reason."""

import pytest
import torch
import torch_geometric.nn as pyg
from layer_graphs import some_graph
from torch import nn

import weft
from weft.interop.pyg.trial import _halves


def _mlp(width: int, out: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, out))


WORKING = {
    "gcn": lambda: pyg.GCNConv(6, 4),
    "gcn improved": lambda: pyg.GCNConv(6, 4, improved=True),
    "gcn without loops": lambda: pyg.GCNConv(6, 4, add_self_loops=False),
    "gcn not normalised": lambda: pyg.GCNConv(6, 4, normalize=False),
    "lightgcn": lambda: pyg.LGConv(),
    "sage": lambda: pyg.SAGEConv(6, 4, aggr=["mean", "max"]),
    "graph": lambda: pyg.GraphConv(6, 4, aggr="mean"),
    "gat": lambda: pyg.GATConv(6, 4, heads=2),
    "gatv2": lambda: pyg.GATv2Conv(6, 4),
    "gin": lambda: pyg.GINConv(_mlp(6)),
    "edgeconv": lambda: pyg.EdgeConv(_mlp(12)),
    "cluster-gcn": lambda: pyg.ClusterGCNConv(6, 4),
    "le": lambda: pyg.LEConv(6, 4),
    "feast": lambda: pyg.FeaStConv(6, 4),
    "agnn": lambda: pyg.AGNNConv(),
    "pna": lambda: pyg.PNAConv(6, 4, ["mean", "std"], ["identity", "amplification"], torch.tensor([1, 2, 3])),
    "mf": lambda: pyg.MFConv(6, 4),
    "gen": lambda: pyg.GENConv(6, 4),
    "gated, one step": lambda: pyg.GatedGraphConv(6, num_layers=1),
    "rgcn": lambda: pyg.RGCNConv(6, 4, num_relations=1),
}


@pytest.mark.parametrize("name", WORKING)
def test_halves_of_a_graph_give_the_rows_of_the_whole(name):
    torch.manual_seed(0)
    conv = WORKING[name]().eval()
    layer = weft.nn.PyG(conv)
    plain = some_graph()
    graph = plain.add_self_loops() if layer.self_loops else plain
    extra = {"edge_type": torch.zeros(plain.num_edges, dtype=torch.long)} if name == "rgcn" else {}
    expected = conv(plain.x, plain.edge_index, **extra)
    parts = torch.cat([layer(block, graph.x[block.src_ids]) for block in _halves(graph)])
    torch.testing.assert_close(parts, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer(graph.block(), graph.x), expected, rtol=1e-4, atol=1e-5)


def test_unmodified_gcn_on_a_half_would_be_wrong():
    conv, graph = pyg.GCNConv(6, 4, add_self_loops=False), some_graph()
    half = _halves(graph)[1]
    local = conv(graph.x[half.src_ids], half.edge_index())[: half.num_dst]
    assert (local - conv(graph.x, graph.edge_index)[6:]).abs().max() > 0.05


def test_edge_attributes_reach_the_convolution():
    graph = some_graph(edge_attr=True)
    attr = torch.empty_like(graph.edge_data["attr"])
    attr[graph.edge_ids.long()] = graph.edge_data["attr"]
    conv = pyg.GATConv(6, 4, edge_dim=3)
    expected = conv(graph.x, graph.edge_index, attr)
    torch.testing.assert_close(weft.nn.PyG(conv)(graph.block(), graph.x), expected)


def test_widths_and_parameters_are_those_of_the_convolution():
    layer = weft.nn.PyG(pyg.GATConv(6, 4, heads=3))
    assert (layer.in_features, layer.out_features) == (6, 12)
    assert {name for name, _ in layer.named_parameters()} == {
        f"conv.{name}" for name, _ in layer.conv.named_parameters()
    }
    assert weft.nn.PyG(pyg.GINConv(_mlp(6))).out_features == 4


def test_gradients_flow_and_normalisation_is_switched_back():
    graph, layer = some_graph().add_self_loops(), weft.nn.PyG(pyg.GCNConv(6, 4))
    layer(graph.block(), graph.x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert layer.conv.normalize


def test_gcn_adds_its_loops_to_a_graph_without_any():
    graph, conv = some_graph(), pyg.GCNConv(6, 4)
    expected = conv(graph.x, graph.edge_index)
    layer = weft.nn.PyG(conv)
    torch.testing.assert_close(layer(graph.block(), graph.x), expected)
    parts = torch.cat([layer(block, graph.x[block.src_ids]) for block in _halves(graph)])
    torch.testing.assert_close(parts, expected)


def test_gcn_on_a_graph_with_some_self_loops_is_refused():
    graph = weft.Graph.from_edges(torch.tensor([[0, 1], [0, 2]]), num_nodes=3, x=torch.randn(3, 6))
    with pytest.raises(
        weft.InputError, match=r"1 of 3 nodes have a self loop; call graph.add_self_loops\(\)"
    ):
        weft.nn.PyG(pyg.GCNConv(6, 4))(graph.block(), graph.x)


def test_two_convolutions_on_one_block_keep_apart():
    graph = some_graph().add_self_loops()
    for conv in (
        pyg.GCNConv(6, 4),
        pyg.GCNConv(6, 4, normalize=False),
        pyg.GCNConv(6, 4, add_self_loops=False),
    ):
        expected = conv(graph.x, graph.edge_index)
        torch.testing.assert_close(weft.nn.PyG(conv)(graph.block(), graph.x), expected)


REFUSED = {
    "several hops": (lambda: pyg.SGConv(6, 4, K=2), "several hops"),
    "chebyshev": (lambda: pyg.ChebConv(6, 4, K=3), "several hops"),
    "appnp": (lambda: pyg.APPNP(10, 0.1), "several hops"),
    "two steps": (lambda: pyg.GatedGraphConv(6, num_layers=2), "several hops"),
    "both ways": (lambda: pyg.DirGNNConv(pyg.SAGEConv(6, 4)), "outgoing edges"),
    "all nodes": (lambda: pyg.GPSConv(6, pyg.SAGEConv(6, 6)), "all nodes"),
    "learned weights": (lambda: pyg.PDNConv(6, 4, 3, 4), "learned edge weights"),
    "dictionaries": (lambda: pyg.HGTConv(6, 4, (["a"], [("a", "b", "a")])), "weft.nn.HGT"),
    "more inputs": (lambda: pyg.GCN2Conv(6, 0.1), "more inputs"),
    "lazy": (lambda: pyg.SAGEConv(-1, 4), "give in_channels as a number"),
    "two widths": (lambda: pyg.SAGEConv((6, 3), 4), "one width"),
    "no convolution": (lambda: nn.Linear(6, 4), "it is no torch_geometric.nn.MessagePassing"),
    "measured: local degrees": (lambda: pyg.EGConv(6, 4, num_heads=2), "differs by"),
    "measured: padded lstm": (lambda: pyg.SAGEConv(6, 4, aggr="lstm"), "differs by"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused_with_the_reason(name):
    torch.manual_seed(0)
    make, reason = REFUSED[name]
    with pytest.raises(weft.InputError, match=reason):
        weft.nn.PyG(make())
