"""Edges that stand for others count as often."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from layer_graphs import some_graph

import weft
from weft.graph.message import compiled
from weft.interop.pyg.weighing import repeated_and_standing

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
    graph = some_graph()
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


class OwnMean(pyg.MessagePassing):
    """A convolution of a user's own."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.in_channels, self.out_channels = 6, 4
        self.lin = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: torch.Tensor, x_i: torch.Tensor) -> torch.Tensor:
        return self.lin(x_j - x_i).tanh()


@pytest.mark.parametrize("make", [lambda: pyg.ResGatedGraphConv(6, 4), OwnMean], ids=["gates", "own mean"])
def test_compiled_messages_weigh_themselves(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)
    layer, graph = weft.nn.PyG(make()).double(), some_graph().to(dtype=torch.float64)
    repeated, standing = repeated_and_standing(graph)
    h = graph.x.clone().requires_grad_()
    results = []
    for block in (repeated, standing):
        with compiled.watched() as asked:
            out = layer(block, h)
        results.append((out, *torch.autograd.grad(out.square().sum(), [h, *layer.parameters()])))
        assert bool(asked) == (block is standing)
        weft.accelerate(layer)
    torch.testing.assert_close(*results)
    assert layer.conv._weft.stands_for is None
    assert layer.conv._weft.told == set()
