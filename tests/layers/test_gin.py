"""GIN against PyG's GINConv."""

import pytest
from torch import nn
from torch_geometric.nn import GINConv

import weft


@pytest.mark.parametrize("widths", [(5, 3), (3, 6)])
@pytest.mark.parametrize("train_eps", [False, True])
def test_equals_pyg(make_graph, assert_same, widths, train_eps):
    inner = nn.Sequential(nn.Linear(widths[0], 7), nn.ReLU(), nn.Linear(7, widths[1]))
    conv = GINConv(inner, eps=0.3, train_eps=train_eps)
    assert_same(weft.nn.GIN(*widths, hidden=7, eps=0.3, train_eps=train_eps), conv, make_graph(widths[0]))


def test_state_has_the_names_of_pyg():
    inner = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2))
    assert weft.nn.GIN(4, 2).state_dict().keys() == GINConv(inner).state_dict().keys()
