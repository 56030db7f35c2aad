"""One class per node."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.tasks.base import tasks
from weft.tasks.classes import ClassTask, note_gaps, shown_facts
from weft.tasks.nodes import NodeTask, check_columns


@tasks.add("node_classification")
class NodeClassification(ClassTask, NodeTask):
    """Predict the class of each node; y holds whole numbers, -1 where none is known.

    `weights` has a number for each class, its share in the loss, or is "balanced": each class then weighs as
    much as any other, however many training nodes it has. `smoothing` spreads that share of a target over all
    classes.
    """

    name: ClassVar[str] = "node_classification"

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph; tell of classes that no node has."""
        shown = super().prepared(graph)
        note_gaps(self.check_labels(graph), "y")
        return shown

    def facts(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many classes there are, and how many nodes are of each."""
        return shown_facts(counts, "Classes", "class", "classes")

    def columns(self, info: GraphInfo) -> int:
        """Return the number of classes."""
        return info.num_classes

    def check_labels(self, graph: GraphView) -> Tensor:
        """Return the classes; refuse several per node, and values."""
        y, kind = super().check_labels(graph), graph.target_type
        if y.dim() == 2:
            raise GraphError("y has several labels per node; use task.name = 'node_multilabel'")
        if y.is_floating_point():
            raise GraphError(
                f"y of {kind!r} holds numbers, not classes (0, 1, …, and -1 for no label){_example(y)}; use "
                "task.name = 'node_regression', or number the classes"
            )
        self.width = graph.num_classes
        return y

    def check_rows(self, h: Any, num_rows: int | None) -> None:
        """Refuse fewer columns than classes; a loss of one's own knows what they are."""
        super().check_rows(h, num_rows)
        if not self.loss.own:
            check_columns(h.shape[1], self.width, "classes", exact=False)


def _example(y: Tensor) -> str:
    """Return a number that is no class, and whose it is."""
    wrong = y.isnan() | (y != y.round()) | (y < -1)
    wrong = wrong if bool(wrong.any()) else y == y.max()
    node = int(wrong.nonzero()[0])
    return f": {float(y[node]):.12g} at node {node:,}"
