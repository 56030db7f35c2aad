"""A layer of your own, trained on a generated graph: messages that no ready-made layer sends.

Run: python examples/custom_layer.py
"""

import torch
from torch import Tensor, nn

import weft


class GatedSum(weft.nn.Layer):
    """h'ᵥ = W hᵥ + Σ sigmoid(a·(hᵤ − hᵥ)) V hᵤ: a neighbour counts by how much it differs."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.own = weft.nn.Linear(in_features, out_features)
        self.other = weft.nn.Linear(in_features, out_features, bias=False)
        self.gate = nn.Parameter(torch.zeros(in_features))

    def forward(self, block: weft.Block, h: Tensor) -> Tensor:
        def message(there: Tensor, value: Tensor, here: Tensor, gate: Tensor) -> Tensor:
            return torch.sigmoid((there - here) @ gate)[:, None] * value

        sums = block.propagate(
            message, src=(h, self.other(h)), dst=(block.dst(h),), reduce="mean", params=(self.gate,)
        )
        return self.own(block.dst(h)) + sums


class Net(nn.Module):
    """Two of them."""

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__()
        self.first, self.second = GatedSum(in_features, hidden), GatedSum(hidden, out_features)
        self.dropout = weft.nn.Dropout(0.3)

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        h = self.first(blocks[0], x).relu()
        return self.second(blocks[1], self.dropout(blocks[0], h, rows="dst"))


if __name__ == "__main__":
    graph = weft.datasets.open_dataset(name="community", nodes=5000)
    summary = weft.train(graph, Net(graph.x.shape[1], 64, graph.num_classes), epochs=40, lr=0.01)
    print(f"test accuracy {summary.test_accuracy:.3f} after {summary.epochs} epochs")
