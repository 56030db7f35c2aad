"""One class per node."""

from typing import Any, ClassVar

from torch import Tensor

from weft.errors import GraphError
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.tasks.base import tasks
from weft.tasks.classes import ClassTask
from weft.tasks.nodes import NodeTask, check_columns


@tasks.add("node_classification")
class NodeClassification(ClassTask, NodeTask):
    """Predict the class of each node; y holds whole numbers, -1 where none is known.

    `weights` has a number for each class, its share in the loss, or is "balanced": each class then weighs as
    much as any other, however many training nodes it has. `smoothing` spreads that share of a target over all
    classes.
    """

    name: ClassVar[str] = "node_classification"

    def columns(self, info: GraphInfo) -> int:
        """Return the number of classes."""
        return info.num_classes

    def check_labels(self, held: GraphView) -> Tensor:
        """Return the classes; refuse several per node, and values."""
        y, told = super().check_labels(held), held.target_type
        if y.dim() == 2:
            raise GraphError("y has several labels per node; use task.name = 'node_multilabel'")
        if y.is_floating_point():
            raise GraphError(
                f"y of {told!r} holds numbers, not classes (0, 1, …, and -1 for no label); use task.name = "
                "'node_regression', or number the classes"
            )
        self.width = held.num_classes
        return y

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse fewer columns than classes; a loss of one's own knows what they are."""
        super().check_rows(h, num_rows)
        if not self.loss.own:
            check_columns(h.shape[1], self.width, "classes", exact=False)
