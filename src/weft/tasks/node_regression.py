"""One number per node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.layers.base import GraphInfo
from weft.tasks.base import Held, Targets, Total, head_of, tasks
from weft.tasks.loss import REGRESSION_LOSSES, Loss
from weft.tasks.metrics import REGRESSION, Metric, regression
from weft.tasks.nodes import NodeTask, check_columns
from weft.tasks.predicted import value_columns


@tasks.add("node_regression")
class NodeRegression(NodeTask):
    """Predict a number for each node: y, or the node data named by `label`; nan where none is known.

    With `standardise` the model learns numbers with mean 0 and variance 1 over the training nodes; outputs,
    metrics and predictions are in the units of the data. The loss is mse, mae or huber, of standardised
    numbers where they are.
    """

    name: ClassVar[str] = "node_regression"
    metrics: Mapping[str, Metric] = REGRESSION
    metric: ClassVar[str] = "rmse"
    watched: ClassVar[tuple[str, ...]] = ("mae", "r2")
    losses: ClassVar[Mapping[str, Loss]] = REGRESSION_LOSSES

    def __init__(self, *, label: str = "y", standardise: bool = True, loss: str | Loss = "auto") -> None:
        super().__init__(loss=loss)
        self.label, self.standardise = label, standardise
        self.moments = (0.0, 1.0)

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph with the numbers as y."""
        held = graph.of_target(self.label)
        if held is None:
            known = sorted(graph.node_data[graph.target_type])
            raise GraphError(
                f"task.label: nodes of type {graph.target_type!r} have no {self.label!r}; there are: "
                f"{', '.join(known)}"
            )
        if held.dim() != 1:
            raise GraphError(
                f"task.label: {self.label!r} has {held.shape[1]} columns; expected one number per node"
            )
        if held.dtype == torch.float64 and self.label == "y":
            return graph
        data = {
            **graph.node_data,
            graph.target_type: {**graph.node_data[graph.target_type], "y": held.double()},
        }
        return Graph(replace(graph.parts(), node_data=data))

    def columns(self, info: GraphInfo) -> int:
        """Return 1."""
        return 1

    def check_labels(self, held: Held) -> Tensor:
        """Return the numbers."""
        y = super().check_labels(held)
        if y.dim() != 1 or not y.is_floating_point():
            raise GraphError(
                "y holds classes; task.name = 'node_regression' needs numbers: read the graph with it"
            )
        return y

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return what gives outputs back in the units of the data; `begin` tells it which."""
        return Units() if self.standardise else None

    def begin(self, model: nn.Module) -> None:
        """Tell the head the units."""
        head = head_of(model)
        if isinstance(head, Units):
            head.values.copy_(torch.tensor(self.moments, dtype=torch.float64))

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return the loss, of standardised numbers where that is asked for."""
        loss = super().make_loss(train, total)
        if not self.standardise:
            return loss
        self.moments = moments(train, total)
        self.metrics = regression(self.moments[0])
        return loss if loss.own else _standardised(loss, self.moments[1])

    def predicted(self, outputs: Tensor, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Return `value`, in the units of the data."""
        return value_columns(outputs)

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse more than one column."""
        super().check_rows(h, num_rows)
        check_columns(h.shape[1], 1, "number to predict", exact=True)


class Units(nn.Module):
    """Gives standardised numbers back in the units of the data, in float64: a large mean costs no digits."""

    of_nodes: ClassVar[bool] = True
    bits: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Bits of float64 (mean, deviation): whole numbers, which `.to(dtype)` of a model does not round.
        self.register_buffer("bits", torch.tensor([0.0, 1.0], dtype=torch.float64).view(torch.int64))

    @property
    def values(self) -> Tensor:
        """Mean and deviation, [2] float64."""
        held: Tensor = self.bits.view(torch.float64)
        return held

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows · deviation + mean."""
        values = self.values
        return rows.double() * values[1] + values[0]


def _standardised(loss: Loss, deviation: float) -> Loss:
    """Return a loss of numbers in units of their standard deviation."""

    def each(outputs: Tensor, y: Tensor) -> Tensor:
        return loss.each(outputs / deviation, y / deviation)

    def summed(outputs: Tensor, y: Tensor) -> Tensor:
        return loss.summed(outputs / deviation, y / deviation)

    return replace(loss, each=each, summed=summed)


def moments(train: Targets, total: Total) -> tuple[float, float]:
    """Return mean and standard deviation of all workers' training numbers; 1 where these are all alike."""
    y = train.y.double().cpu()
    count = max(train.count, 1)
    mean = float(total(y.sum().reshape(1))) / count
    spread = float(total(((y - mean) ** 2).sum().reshape(1))) / count
    return mean, spread**0.5 if spread > 0 else 1.0
