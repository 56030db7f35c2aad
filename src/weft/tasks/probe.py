"""A linear probe: how much of the labels of nodes a linear model can read off their rows.

Rows that were learned without labels are judged by it. The model is a ridge regression, whose sums add up
over workers: each worker needs its own rows alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.graph.views import GraphView
from weft.tasks.base import Total
from weft.tasks.metrics import METRICS, Counted
from weft.tasks.nodes import NodeTargets, node_targets

RIDGE = 1e-3
"""What is added to each column's sum of squares, as a share of the mean of these."""


@dataclass(frozen=True, eq=False)
class Probe:
    """The labelled nodes of a worker, by split, and how many classes all workers' have."""

    targets: dict[str, NodeTargets]
    num_classes: int
    multilabel: bool

    @classmethod
    def of(cls, graph: GraphView, total: Total) -> "Probe | None":
        """Return the probe of the labels there are, None without classes to train on; all workers call it."""
        y = graph.y
        if y is None or (y.is_floating_point() and y.dim() == 1):
            return None
        by_split = node_targets(graph, y)
        sizes = total(torch.tensor([len(some) for some in by_split.values()])).tolist()
        if not sizes[0]:
            return None
        kept = {split: some for (split, some), size in zip(by_split.items(), sizes) if size}
        return cls(kept, graph.num_classes, y.dim() == 2)

    def scores(self, rows: Callable[[NodeTargets], Tensor], total: Total) -> dict[str, float]:
        """Return the accuracy of each split, of several labels the micro F1; called by all workers.

        `rows` gives the rows [n, d] of own nodes.
        """
        weight = self._solved(rows(self.targets["train"]), self.targets["train"].y, total)
        metric = METRICS["micro_f1" if self.multilabel else "accuracy"]
        assert isinstance(metric, Counted), "sums of workers add up"
        by_split = {}
        for split, targets in self.targets.items():
            counts = metric.counts((_columns(rows(targets)) @ weight), targets.y.cpu())
            by_split[split] = metric.value(total(counts))
        return by_split

    def _solved(self, rows: Tensor, y: Tensor, total: Total) -> Tensor:
        """Return weights [d + 1, classes] of a ridge regression to 1 for a label and -1 for another."""
        x, width = _columns(rows), rows.shape[1]
        wanted = 2 * (y if self.multilabel else F.one_hot(y, self.num_classes)).cpu().double() - 1
        sums = total(torch.cat([x.t() @ x, x.t() @ wanted], 1))
        squares, products = sums[:, : width + 1], sums[:, width + 1 :]
        slack = RIDGE * squares.diagonal()[:width].mean() + torch.finfo(torch.float64).tiny
        squares.diagonal()[:width].add_(slack)
        solved: Tensor = torch.linalg.solve(squares, products)
        return solved


def _columns(rows: Tensor) -> Tensor:
    """Return rows in float64 on the host, and a one beside each."""
    return F.pad(rows.detach().cpu().double(), (0, 1), value=1.0)
