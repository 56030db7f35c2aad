"""Graphs with everything that goes wrong in them, and the comparison with PyG that most layer tests make."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

NUM_NODES = 14


def _edges(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    random = torch.randint(0, NUM_NODES - 2, (2, 40), generator=generator)  # nodes 12 and 13 stay isolated
    if name == "multi-edges and loops":
        return torch.cat([random, random[:, :6], torch.tensor([[3, 3, 5], [3, 3, 5]])], dim=1)
    if name == "hub":
        spokes = torch.arange(NUM_NODES)
        return torch.cat([torch.stack([spokes, torch.zeros_like(spokes)]), random[:, :5]], dim=1)
    if name == "no edges":
        return torch.empty(2, 0, dtype=torch.long)
    return random


@pytest.fixture(params=["directed", "multi-edges and loops", "hub", "no edges"])
def edges(request: pytest.FixtureRequest) -> Tensor:
    """edge_index of a small graph; nodes 12 and 13 are isolated in all but the hub."""
    return _edges(request.param)


@pytest.fixture
def make_graph(edges: Tensor) -> Callable[..., weft.Graph]:
    """A function that makes the graph with float64 features of the given width."""

    def make(width: int, edge_width: int = 0, **data: Any) -> weft.Graph:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(NUM_NODES, width, generator=generator, dtype=torch.float64)
        if edge_width:
            data["edge_attr"] = torch.randn(
                edges.shape[1], edge_width, generator=generator, dtype=torch.float64
            )
        return weft.Graph.from_edges(edges, num_nodes=NUM_NODES, x=x, **data)

    return make


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """A function that compares outputs and gradients of a layer and a PyG convolution of the same weights."""

    def compare(layer: nn.Module, conv: nn.Module, graph: weft.Graph, *extra: Any, names: Any = None) -> None:
        layer, conv = layer.double(), conv.double()
        names = names or {name: name for name in dict(conv.named_parameters())}
        _copy(conv, layer, names)
        ours = graph.x.clone().requires_grad_()
        theirs = graph.x.clone().requires_grad_()
        out = layer(graph.block(), ours)
        expected = conv(theirs, graph.edge_index, *extra)
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        pull = torch.randn_like(expected)
        (out * pull).sum().backward()
        (expected * pull).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
        _same_gradients(conv, layer, names)

    return compare


def _copy(conv: nn.Module, layer: nn.Module, names: dict[str, str]) -> None:
    theirs, ours = dict(conv.named_parameters()), dict(layer.named_parameters())
    assert set(names.values()) == set(ours)
    with torch.no_grad():
        for name, our_name in names.items():
            ours[our_name].copy_(theirs[name])


def _same_gradients(conv: nn.Module, layer: nn.Module, names: dict[str, str]) -> None:
    theirs, ours = dict(conv.named_parameters()), dict(layer.named_parameters())
    for name, our_name in names.items():
        expected = theirs[name].grad
        expected = torch.zeros_like(theirs[name]) if expected is None else expected
        torch.testing.assert_close(
            ours[our_name].grad, expected, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )
