"""PyG convolutions on blocks: the whole graph's numbers on a part of it, or a refusal with the reason."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import weft
from weft.interop.pyg.trial import _halves
from weft.interop.pyg.weighing import repeated_and_standing


def _mlp(width: int, out: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, out))


def _graph(**data: object) -> weft.Graph:
    torch.manual_seed(2)
    edges = torch.unique(torch.randint(0, 11, (2, 40)), dim=1)
    edges = edges[:, edges[0] != edges[1]]
    if data.get("edge_attr"):
        data["edge_attr"] = torch.rand(edges.shape[1], 3)
    return weft.Graph.from_edges(edges, num_nodes=12, x=torch.randn(12, 6), **data)


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
    plain = _graph()
    graph = plain.add_self_loops() if layer.self_loops else plain
    extra = {"edge_type": torch.zeros(plain.num_edges, dtype=torch.long)} if name == "rgcn" else {}
    expected = conv(plain.x, plain.edge_index, **extra)
    parts = torch.cat([layer(block, graph.x[block.src_ids]) for block in _halves(graph)])
    torch.testing.assert_close(parts, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer(graph.block(), graph.x), expected, rtol=1e-4, atol=1e-5)


def test_unmodified_gcn_on_a_half_would_be_wrong():
    conv, graph = pyg.GCNConv(6, 4, add_self_loops=False), _graph()
    half = _halves(graph)[1]
    local = conv(graph.x[half.src_ids], half.edge_index())[: half.num_dst]
    assert (local - conv(graph.x, graph.edge_index)[6:]).abs().max() > 0.05


def test_edge_attributes_reach_the_convolution():
    graph = _graph(edge_attr=True)
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
    graph, layer = _graph().add_self_loops(), weft.nn.PyG(pyg.GCNConv(6, 4))
    layer(graph.block(), graph.x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert layer.conv.normalize


def test_gcn_adds_its_loops_to_a_graph_without_any():
    graph, conv = _graph(), pyg.GCNConv(6, 4)
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
    graph = _graph().add_self_loops()
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


class LocalDegrees(pyg.MessagePassing):
    """A user's layer that divides by the out-degree of the source: a part of the graph counts fewer."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.in_channels = 6

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = torch.bincount(edge_index[0], minlength=len(x)).clamp(min=1).to(x.dtype)
        return self.propagate(edge_index, x=x / degree[:, None])


class Plain(pyg.MessagePassing):
    """A user's layer that is right on any block."""

    def __init__(self) -> None:
        super().__init__(aggr="max")
        self.in_channels = 6

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


def test_layers_of_users_are_told_apart_by_trial():
    with pytest.raises(
        weft.InputError, match=r"LocalDegrees cannot run on blocks: on two halves .* differs by"
    ):
        weft.nn.PyG(LocalDegrees())
    assert weft.nn.PyG(Plain()).call == "pair"


WEIGHED = {
    "sum": (lambda: pyg.GraphConv(6, 4), "weighed"),
    "mean": (lambda: pyg.SAGEConv(6, 4), "weighed"),
    "normalised": (lambda: pyg.GCNConv(6, 4, add_self_loops=False), "weighed"),
    "gates": (lambda: pyg.ResGatedGraphConv(6, 4), "weighed"),
    "two passes": (lambda: pyg.FiLMConv(6, 4), "weighed"),
    "max": (lambda: pyg.SAGEConv(6, 4, aggr="max"), "over what is there"),
    "attention": (lambda: pyg.GATConv(6, 4), "over what is there"),
    "attention of another name": (lambda: pyg.FeaStConv(6, 4), "over what is there"),
    "several reductions": (lambda: pyg.SAGEConv(6, 4, aggr=["mean", "max"]), "neither"),
    "degrees of its own": (lambda: pyg.MFConv(6, 4), "neither"),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_edges_that_stand_for_others_count_as_often_in_sums_and_means(name: str) -> None:
    make, expected = WEIGHED[name]
    layer = weft.nn.PyG(make())
    assert layer.weighs == expected
    graph = _graph()
    repeated, standing = repeated_and_standing(graph)
    if expected == "neither":
        with pytest.raises(weft.WeftError, match=f"{type(layer.conv).__name__} neither weighs its messages"):
            layer(standing, graph.x)
        return
    h = graph.x.clone().requires_grad_()
    results = []
    for block in (repeated if expected == "weighed" else graph.block(), standing):
        out = layer(block, h)
        (gradient,) = torch.autograd.grad(out.square().sum(), h)
        results.append((out, gradient))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
