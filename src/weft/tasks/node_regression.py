"""One number per node."""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.tasks.base import tasks
from weft.tasks.nodes import NodeTask, by_time, check_columns
from weft.tasks.numbers import NumberTask


@tasks.add("node_regression")
class NodeRegression(NumberTask, NodeTask):
    """Predict a number for each node: y, or the node data named by `label`; nan where none is known.

    With `standardise` the model learns numbers with mean 0 and variance 1 over the training nodes; outputs,
    metrics and predictions are in the units of the data. The loss is mse, mae or huber, of standardised
    numbers where they are.
    """

    name: ClassVar[str] = "node_regression"

    def __init__(self, *, label: str = "y", **options: Any) -> None:
        super().__init__(**options)
        self.label = label

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph with the numbers as y."""
        graph = by_time(graph)
        numbers = graph.of_target(self.label)
        if numbers is None:
            known = sorted(graph.node_data[graph.target_type])
            raise GraphError(
                f"task.label: nodes of type {graph.target_type!r} have no {self.label!r}; there are: "
                f"{', '.join(known)}"
            )
        if numbers.dim() != 1:
            raise GraphError(
                f"task.label: {self.label!r} has {numbers.shape[1]} columns; expected one number per node"
            )
        if numbers.dtype == torch.float64 and self.label == "y":
            return graph
        data = {
            **graph.node_data,
            graph.target_type: {**graph.node_data[graph.target_type], "y": numbers.double()},
        }
        return Graph(replace(graph.parts(), node_data=data))

    def columns(self, info: GraphInfo) -> int:
        """Return 1."""
        return 1

    def check_labels(self, graph: GraphView) -> Tensor:
        """Return the numbers."""
        y = super().check_labels(graph)
        if y.dim() != 1 or not y.is_floating_point():
            raise GraphError(
                "y holds classes; task.name = 'node_regression' needs numbers: read the graph with it"
            )
        return y

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return what gives outputs back in the units of the data; `begin` tells it which."""
        return self.numbers.make_head()

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse more than one column."""
        super().check_rows(h, num_rows)
        check_columns(h.shape[1], 1, "number to predict", exact=True)
