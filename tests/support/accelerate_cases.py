"""Edges and models that the tests of acceleration share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
)

N = 20
E = 90


def mlp(width: int = 6) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 4))


def some_edges(num_src: int = N, num_dst: int = N, count: int = E) -> Tensor:
    """Return edges with loops, two rows without any."""
    generator = torch.Generator().manual_seed(5)
    src = torch.randint(0, num_src - 2, (count,), generator=generator)  # the last two rows are isolated
    dst = torch.randint(0, num_dst - 2, (count,), generator=generator)
    loops = torch.tensor([3, 3, 7])
    return torch.stack([torch.cat([src, loops]), torch.cat([dst, loops])])


def attributes(width: int | None) -> Tensor:
    """Return a number, or several, for each edge."""
    generator = torch.Generator().manual_seed(6)
    shape = (E + 3,) if width is None else (E + 3, width)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


class Example(nn.Module):
    """PyG's GAT example."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.conv1 = GATConv(width, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, 3, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)
