"""HeldGraph: what a process has of a graph: the graph itself, parts of it, or records that stand for it."""

from typing import Any, Protocol

from torch import Tensor

from weft.graph.build import EdgeType
from weft.graph.sparse import Features


class HeldGraph(Protocol):
    """Counts and types are those of the whole graph, node data and rows those that are here."""

    node_types: list[str]
    node_offsets: list[int]
    edge_types: list[EdgeType]
    node_data: dict[str, dict[str, Features]]

    @property
    def num_nodes(self) -> int:
        """The nodes of the whole graph."""

    @property
    def num_edges(self) -> int:
        """The edges of the whole graph."""

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 without any."""

    @property
    def edge_data(self) -> dict[str, Tensor]:
        """Edge data by name."""

    @property
    def indptr(self) -> Tensor:
        """Where the edges into each own row begin; where it lies, the graph does."""

    @property
    def x(self) -> Any:
        """The features of own rows."""

    @property
    def y(self) -> Tensor | None:
        """What is known of own rows of the target type."""

    @property
    def target_type(self) -> str:
        """The node type that has labels."""

    @property
    def target_rows(self) -> slice:
        """The own rows of the target type."""

    @property
    def owned(self) -> Tensor | None:
        """Which rows count here, [n] bool; None: all of them."""

    @property
    def own_ids(self) -> Tensor | None:
        """The global ids of the nodes that count here, [n]; None: all of the graph."""

    def of_target(self, name: str) -> Tensor | None:
        """Return what own rows of the target type have under a name; None where they have nothing."""

    def labelled(self, rows: Tensor) -> Tensor:
        """Return those of some own rows of the target type whose y is known."""

    def summary(self) -> dict[str, Any]:
        """Return counts of the whole graph as plain numbers."""
