"""One class per edge."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from torch import Tensor

from weft.config import Range
from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.tasks.base import Targets, Total, tasks
from weft.tasks.classes import Classes, Weights
from weft.tasks.edges import EdgeTask
from weft.tasks.loss import CROSS_ENTROPY, Loss
from weft.tasks.metrics import METRICS, Metric
from weft.tasks.pairs import SHARE, Hide
from weft.tasks.predicted import class_columns


@tasks.add("edge_classification")
class EdgeClassification(EdgeTask):
    """Predict the class of edges: the edge data named by `label`, whole numbers, -1 where none is known.

    A head reads the model's rows of both ends, `width` columns each, and of what is known of an edge the
    names in `edge_data`, by default all; never the label. `target` and `split` are those of link_prediction.
    Training edges are messages, without their labels; `hide` is "batch", or "disjoint" with a `share`, where
    that would tell too much. `weights` and `smoothing` are those of node_classification.
    """

    name: ClassVar[str] = "edge_classification"
    metrics: Mapping[str, Metric] = METRICS
    metric: ClassVar[str] = "accuracy"
    watched: ClassVar[tuple[str, ...]] = ("accuracy",)
    losses: ClassVar[Mapping[str, Loss]] = {"cross_entropy": CROSS_ENTROPY}

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
        weights: Weights = None,
        smoothing: Annotated[float, Range(least=0, below=1)] = 0.0,
        loss: str | Loss = "auto",
    ) -> None:
        shared = {"target": target, "split": split, "hide": hide, "share": share, "width": width}
        super().__init__(label=label, edge_data=edge_data, loss=loss, **shared)
        self.classes = Classes(weights, smoothing)

    def learn(self, graph: Graph, shown: Graph) -> None:
        """Refuse labels that are no classes."""
        y = graph.edge_data[str(self.label)]
        if y.is_floating_point() or y.dim() > 1:
            what = "numbers" if y.is_floating_point() else f"{y.shape[1]} columns"
            raise GraphError(
                f"task.label: {self.label!r} of edges holds {what}, not classes (0, 1, …, and -1 for no "
                "label); use task.name = 'edge_regression', or number the classes"
            )

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of classes: those of all edges that have one."""
        return 1 + max(int(pairs.y.max()) for pairs in self._pairs.values() if pairs.y is not None)

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return cross-entropy, or a loss of the user's own."""
        return self.classes.loss(super().make_loss(train, total), train, total, self.width)

    def predicted(self, outputs: Tensor, classes: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the `prediction`, its `probability`, and `output`, a number per class."""
        return class_columns(outputs, classes)
