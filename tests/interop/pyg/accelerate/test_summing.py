"""Accelerated sums: learned weights and features of edges get their gradient."""

import copy

import pytest
import torch
from accelerate_cases import N, attributes, mlp, some_edges
from torch import Tensor, nn
from torch_geometric.nn import (
    GCNConv,
    GINEConv,
)

import weft


def test_edge_weight_gets_its_gradient():
    plain = GCNConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), some_edges()
    grads = []
    for conv in (plain, fast):
        weight = attributes(None).float().requires_grad_()
        conv(x, edges, weight).square().sum().backward()
        grads.append(weight.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_learned_features_of_edges_get_their_gradient(edge_dim: int | None):
    plain = GINEConv(mlp(), edge_dim=edge_dim).double()
    fast = weft.accelerate(copy.deepcopy(plain))
    edges, x = some_edges(), torch.randn(N, 6, dtype=torch.float64)
    attr = torch.randn(edges.shape[1], edge_dim or 6, dtype=torch.float64)
    found = []
    for conv in (plain, fast):
        given = attr.clone().requires_grad_()
        out = conv(x, edges, given)
        out.square().sum().backward()
        found.append((out, given.grad))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_gine_keeps_a_byte_a_message_for_backward():
    conv = weft.accelerate(GINEConv(nn.Identity()), check=False)
    x, edges = torch.randn(N, 6, requires_grad=True), some_edges()
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        conv(x, edges, torch.randn(edges.shape[1], 6)).sum().backward()
    assert max(kept) <= 6 * edges.shape[1]
