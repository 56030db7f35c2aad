"""One class per edge."""

from typing import ClassVar

from weft.errors import GraphError
from weft.graph.checks import most_classes
from weft.graph.ends import edge_ends
from weft.graph.graph import Graph
from weft.tasks.base import tasks
from weft.tasks.classes import ClassTask, note_gaps
from weft.tasks.edges import EdgeTask


@tasks.add("edge_classification")
class EdgeClassification(ClassTask, EdgeTask):
    """Predict the class of edges: the edge data named by `label`, whole numbers, -1 where none is known.

    A head reads the model's rows of both ends, `width` columns each, and of what is known of an edge the
    names in `edge_data`, by default all; never the label. `target` and `split` are those of link_prediction.
    Training edges are messages, without their labels; `hide` is "batch", or "disjoint" with a `share`, where
    that would tell too much. `weights` and `smoothing` are those of node_classification.
    """

    name: ClassVar[str] = "edge_classification"

    def learn(self, graph: Graph, shown: Graph) -> None:
        """Refuse labels that are no classes; tell of classes that no edge has."""
        y = graph.edge_data[str(self.label)]
        if y.is_floating_point() or y.dim() > 1:
            what = "numbers" if y.is_floating_point() else f"{y.shape[1]} columns"
            raise GraphError(
                f"task.label: {self.label!r} of edges holds {what}, not classes (0, 1, …, and -1 for no "
                "label); use task.name = 'edge_regression', or number the classes"
            )
        largest = most_classes(len(y)) - 1
        if len(y) and int(y.max()) > largest:
            ends = [int(end[int(y.argmax())]) for end in edge_ends(graph)[:2]]
            raise GraphError(
                f"task.label: {self.label!r} of edges holds {int(y.max()):,} at the edge from node "
                f"{ends[0]:,} to {ends[1]:,}: classes are 0 … {largest:,}; use task.name = "
                "'edge_regression', or number the classes"
            )
        note_gaps(y.long(), str(self.label))

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of classes: those of all edges that have one."""
        return 1 + max(int(pairs.y.max()) for pairs in self._pairs.values() if pairs.y is not None)
