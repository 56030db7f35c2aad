"""Accelerated convolutions of relations."""

import copy

import torch
from accelerate_cases import E, N, some_edges
from torch_geometric.nn import (
    RGCNConv,
)

import weft


def test_node_numbers_in_place_of_features_are_those_of_pyg():
    edges, kinds = some_edges(), torch.arange(E + 3) % 3
    plain = RGCNConv(N, 4, num_relations=3, num_bases=2)
    fast = weft.accelerate(copy.deepcopy(plain))
    torch.testing.assert_close(fast(None, edges, kinds), plain(None, edges, kinds))
