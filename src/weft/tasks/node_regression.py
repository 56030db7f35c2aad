"""One number per node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.held import HeldGraph
from weft.layers.base import GraphInfo
from weft.tasks.base import Targets, Total, tasks
from weft.tasks.loss import REGRESSION_LOSSES, Loss
from weft.tasks.metrics import REGRESSION, Metric
from weft.tasks.nodes import NodeTask, check_columns
from weft.tasks.numbers import Numbers
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
        self.label = label
        self.numbers = Numbers(standardise)

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

    def check_labels(self, held: HeldGraph) -> Tensor:
        """Return the numbers."""
        y = super().check_labels(held)
        if y.dim() != 1 or not y.is_floating_point():
            raise GraphError(
                "y holds classes; task.name = 'node_regression' needs numbers: read the graph with it"
            )
        return y

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return what gives outputs back in the units of the data; `begin` tells it which."""
        return self.numbers.make_head()

    def begin(self, model: nn.Module) -> None:
        """Tell the head the units."""
        self.numbers.begin(model)

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return the loss, of standardised numbers where that is asked for."""
        loss = self.numbers.loss(super().make_loss(train, total), train, total)
        self.metrics = self.numbers.metrics
        return loss

    def predicted(self, outputs: Tensor, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Return `value`, in the units of the data."""
        return value_columns(outputs)

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse more than one column."""
        super().check_rows(h, num_rows)
        check_columns(h.shape[1], 1, "number to predict", exact=True)
