"""Accelerated attention."""

import pytest
import torch
from accelerate_cases import N, some_edges
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    TransformerConv,
)

import weft


@pytest.mark.parametrize("make", [GATConv, GATv2Conv, TransformerConv])
def test_attention_weights_are_dropped_in_training_only(make):
    fast, x, edges = weft.accelerate(make(6, 4, dropout=0.5)), torch.randn(N, 6), some_edges()
    assert not torch.equal(fast(x, edges), fast(x, edges))
    fast.eval()
    assert torch.equal(fast(x, edges), fast(x, edges))
