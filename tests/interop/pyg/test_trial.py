"""Which layers of users read more than their rows is found by a trial."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import weft


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
