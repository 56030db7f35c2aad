"""One number per edge."""

from dataclasses import replace
from typing import ClassVar

from torch import nn

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.tasks.base import tasks
from weft.tasks.edges import EdgeTask
from weft.tasks.numbers import NumberTask


@tasks.add("edge_regression")
class EdgeRegression(NumberTask, EdgeTask):
    """Predict a number of edges: the edge data named by `label`, nan where none is known.

    The head with its `width` and `edge_data`, `target`, `split`, `hide` and `share` are those of
    edge_classification, `standardise` and the losses mse, mae and huber those of node_regression: outputs are
    in the units of the data.
    """

    name: ClassVar[str] = "edge_regression"

    def labelled(self, graph: Graph) -> Graph:
        """Return the graph with numbers in float64; no whole number among them says unknown."""
        numbers = graph.edge_data.get(str(self.label))
        if numbers is None:
            return graph
        if numbers.dim() > 1:
            raise GraphError(
                f"task.label: {self.label!r} has {numbers.shape[1]} columns; expected one number per edge"
            )
        data = {**graph.edge_data, str(self.label): numbers.double()}
        return Graph(replace(graph.parts(), edge_data=data))

    def make_end(self) -> nn.Module | None:
        """Return what gives outputs back in the units of the data."""
        return self.numbers.make_head()
