"""EdgeConv against PyG's EdgeConv."""

import pytest
from torch import nn
from torch_geometric.nn import EdgeConv

import weft


@pytest.mark.parametrize("aggregate", ["max", "mean", "sum"])
def test_equals_pyg(make_graph, assert_same, aggregate):
    # Duplicate edges tie in max, where the gradient is ours to define.
    graph = make_graph(5).drop_duplicates()
    inner = nn.Sequential(nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 4))
    assert_same(weft.nn.EdgeConv(5, 4, hidden=7, aggregate=aggregate), EdgeConv(inner, aggr=aggregate), graph)
