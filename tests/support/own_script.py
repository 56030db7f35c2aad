"""A script as a user of weft writes it: its own model, loss and metric, trained from `__main__`.

python own_script.py 1 '{"workers": 2}'; torchrun --nproc-per-node 2 own_script.py 2 '{}'
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft


class Net(nn.Module):
    """Keeps none of its arguments, and a function."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = weft.nn.SAGE(width, hidden)
        self.second = weft.nn.SAGE(hidden, classes)
        self.activation = F.elu

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        h = self.activation(self.first(blocks[0], x))
        out: Tensor = self.second(blocks[1], h)
        return out


def steep(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss of rows."""
    return F.cross_entropy(outputs, y, reduction="none") ** 1.5


def sure(outputs: Tensor, y: Tensor) -> float:
    """A metric of all rows together."""
    return float(outputs.softmax(1).gather(1, y[:, None]).median())


def main() -> None:
    """Train some times, each time further, and print what came of it."""
    torch.manual_seed(3 + int(os.environ.get("RANK", "0")))  # ranks begin with the weights of rank 0
    graph = weft.datasets.open_dataset(name="community", nodes=120, degree=6, classes=3, features=8, seed=1)
    rounds, given = int(sys.argv[1]), json.loads(sys.argv[2])
    told: list[str] = []
    model = Net(8, 5, 3)
    losses, weights = [], []
    for _ in range(rounds):
        summary = weft.train(
            graph,
            model,
            epochs=2,
            loss=steep,
            metrics={"sure": sure},
            metric="sure",
            precision="float64",
            progress=lambda event: told.append(event["event"]),
            **given,
        )
        losses.append(summary.loss)
        weights.append(sum(float(each.detach().sum()) for each in model.parameters()))
    result = {
        "losses": losses,
        "test": summary.metrics["test"],
        "weights": weights,
        "workers": summary.workers,
    }
    print(json.dumps({**result, "sent": summary.bytes_sent > 0, "epochs": told.count("epoch")}))


if __name__ == "__main__":
    main()
