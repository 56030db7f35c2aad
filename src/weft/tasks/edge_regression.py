"""One number per edge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from weft.config import Range
from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.tasks.base import Targets, Total, tasks
from weft.tasks.edges import EdgeTask
from weft.tasks.loss import REGRESSION_LOSSES, Loss
from weft.tasks.metrics import REGRESSION, Metric
from weft.tasks.numbers import Numbers
from weft.tasks.pairs import SHARE, Hide
from weft.tasks.predicted import value_columns


@tasks.add("edge_regression")
class EdgeRegression(EdgeTask):
    """Predict a number of edges: the edge data named by `label`, nan where none is known.

    The head with its `width` and `edge_data`, `target`, `split`, `hide` and `share` are those of
    edge_classification, `standardise` and the losses mse, mae and huber those of node_regression: outputs are
    in the units of the data.
    """

    name: ClassVar[str] = "edge_regression"
    metrics: Mapping[str, Metric] = REGRESSION
    metric: ClassVar[str] = "rmse"
    watched: ClassVar[tuple[str, ...]] = ("mae", "r2")
    losses: ClassVar[Mapping[str, Loss]] = REGRESSION_LOSSES

    def __init__(
        self,
        *,
        label: str = "label",
        edge_data: Sequence[str] | None = None,
        target: Any = None,
        split: Mapping[str, Any] | None = None,
        hide: Hide = "auto",
        share: Annotated[float, Range(above=0, below=1)] = SHARE,
        width: Annotated[int, Range(least=1)] = 64,
        standardise: bool = True,
        loss: str | Loss = "auto",
    ) -> None:
        shared = {"target": target, "split": split, "hide": hide, "share": share, "width": width}
        super().__init__(label=label, edge_data=edge_data, loss=loss, **shared)
        self.numbers = Numbers(standardise)

    def labelled(self, graph: Graph) -> Graph:
        """Return the graph with numbers in float64; no whole number among them says unknown."""
        held = graph.edge_data.get(str(self.label))
        if held is None:
            return graph
        if held.dim() > 1:
            raise GraphError(
                f"task.label: {self.label!r} has {held.shape[1]} columns; expected one number per edge"
            )
        data = {**graph.edge_data, str(self.label): held.double()}
        return Graph(replace(graph.parts(), edge_data=data))

    def make_end(self) -> nn.Module | None:
        """Return what gives outputs back in the units of the data."""
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
