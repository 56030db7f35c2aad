"""Accelerated sums: learned weights and features of edges get their gradient."""

import copy

import torch
from accelerate_cases import N, attributes, some_edges
from torch_geometric.nn import (
    GCNConv,
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
