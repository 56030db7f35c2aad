"""APPNP against PyG's APPNP after the same network."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import APPNP

import weft


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(5, 7), nn.Linear(7, 4)])
        self.spread = APPNP(K=4, alpha=0.2, add_self_loops=False)

    def forward(self, x, edge_index):
        return self.spread(self.lins[1](self.lins[0](x).relu()), edge_index)


def test_equals_pyg(make_graph, assert_same):
    assert_same(weft.nn.APPNP(5, 4, hops=4, alpha=0.2, hidden=7), Reference(), make_graph(5))


def test_alpha_one_returns_the_networks_prediction():
    graph = weft.Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=2, x=torch.randn(2, 3))
    layer = weft.nn.APPNP(3, 2, alpha=1.0, depth=1)
    torch.testing.assert_close(layer(graph.block(), graph.x), layer.lins[0](graph.x))


def test_alpha_outside_its_range_is_refused():
    with pytest.raises(weft.InputError, match=r"APPNP: alpha must be in \[0, 1\], got 1.5"):
        weft.nn.APPNP(3, 2, alpha=1.5)
