"""Models, a loss and metrics as a user of weft writes them: none of them is weft's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft


class Net(nn.Module):
    """Two layers with a skip over both, called with blocks; it keeps none of its arguments."""

    def __init__(self, in_features: int, out_features: int, *, hidden: int = 8, gated: bool = False) -> None:
        super().__init__()
        self.first = weft.nn.SAGE(in_features, hidden)
        self.second = weft.nn.SAGE(hidden, out_features)
        self.skip = nn.Linear(in_features, out_features)
        self.gate = nn.Parameter(torch.ones(out_features)) if gated else None

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        h = F.elu(self.first(blocks[0], x))
        h = self.second(blocks[1], h)
        out = h + self.skip(x)[: len(h)]
        return out if self.gate is None else out * self.gate


class Looped(nn.Module):
    """One layer that is defined with self loops, and keeps its arguments."""

    def __init__(self, in_features: int, out_features: int, scale: float = 1.0) -> None:
        super().__init__()
        self.in_features, self.out_features, self.scale = in_features, out_features, scale
        self.only = weft.nn.GCN(in_features, out_features)

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        out: Tensor = self.only(blocks[0], x) * self.scale
        return out


def focal(outputs: Tensor, y: Tensor) -> Tensor:
    """The focal loss of each row."""
    loss = F.cross_entropy(outputs, y, reduction="none")
    return (1 - torch.exp(-loss)) ** 2 * loss


def focal_mean(outputs: Tensor, y: Tensor) -> Tensor:
    """The same, over all rows."""
    return focal(outputs, y).mean()


def confidence(outputs: Tensor, y: Tensor) -> float:
    """How sure the model is of the true class; of rows that must be all there, in any order."""
    return float(outputs.softmax(dim=1).gather(1, y[:, None]).median())


def no_number(outputs: Tensor, y: Tensor) -> Tensor:
    """What no metric gives."""
    return outputs


NOT_A_CLASS = 3
