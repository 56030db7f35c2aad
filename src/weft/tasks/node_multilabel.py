"""Several labels per node."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from weft.errors import GraphError
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.tasks.base import tasks
from weft.tasks.classes import shown_facts
from weft.tasks.loss import BCE, Loss
from weft.tasks.metrics import METRICS, Metric
from weft.tasks.nodes import NodeTask, check_columns
from weft.tasks.predicted import label_columns


@tasks.add("node_multilabel")
class NodeMultilabel(NodeTask):
    """Predict which of several labels each node has; y has a column of zeros and ones for each."""

    name: ClassVar[str] = "node_multilabel"
    metrics: Mapping[str, Metric] = METRICS
    metric: ClassVar[str] = "micro_f1"
    watched: ClassVar[tuple[str, ...]] = ("accuracy",)
    losses: ClassVar[dict[str, Loss]] = {"bce": BCE}

    def columns(self, info: GraphInfo) -> int:
        """Return the number of labels."""
        return info.num_classes

    def check_labels(self, graph: GraphView) -> Tensor:
        """Return the columns; refuse one label per node."""
        y = super().check_labels(graph)
        if y.dim() != 2:
            raise GraphError(
                "y has one number per node, not a column of zeros and ones per label; leave out task.name"
            )
        self.width = y.shape[1]
        return y

    def facts(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many labels there are, and how many nodes have each."""
        facts = shown_facts(counts, "Labels a node may have", "label", "labels")
        return {"called": "multi-label node classification", **facts}

    def predicted(self, outputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the `prediction`, a list of labels, and `output`, a number per label."""
        return label_columns(outputs, names)

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse another number of columns than of labels."""
        super().check_rows(h, num_rows)
        check_columns(h.shape[1], self.width, "classes", exact=True)
