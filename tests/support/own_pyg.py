"""Models as PyG's users write them: called with x and edge_index, nothing of weft in them."""

import torch.nn.functional as F
import torch_geometric as pyg
from torch import Tensor, nn


class Net(nn.Module):
    """A convolution with self loops of its own, one without, a skip over both, dropout and a norm."""

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 6, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = pyg.nn.GCNConv(in_channels, hidden)
        self.second = pyg.nn.SAGEConv(hidden, out_channels)
        self.norm = nn.LayerNorm(hidden)
        self.skip = nn.Linear(in_channels, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.norm(self.first(x, edge_index)))
        h = F.dropout(h, p=self.dropout, training=self.training)
        out: Tensor = self.second(h, edge_index) + self.skip(x)
        return out


class Normed(Net):
    """The same with a batch norm, which is over all rows of all workers."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.norm = nn.BatchNorm1d(6)  # type: ignore[assignment]


class Mixing(Net):
    """Looks at all rows between its layers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        out: Tensor = self.second(h - h.mean(dim=0), edge_index)
        return out
