"""What a process has of a graph: the graph itself, parts of it, or records that stand for it.

`GraphView` is what all three have, `EdgeView` what samplers draw from. Who reads these does not ask which
kind it was given.
"""

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from weft import kernels
from weft.graph.build import EdgeType
from weft.graph.sparse import Features


class GraphView(Protocol):
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
    def multilabel(self) -> bool:
        """Whether a node has several labels."""

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
    def is_labelled(self) -> bool:
        """Whether nodes of some type have a y."""

    @property
    def target_type(self) -> str:
        """The node type that targets are of."""

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

    def known_of(self, rows: Tensor) -> Tensor | None:
        """Return y of some own rows, which must be of the target type; None where there is no y."""

    def seeds(self) -> Tensor:
        """Return the own rows to train on: of the training split, with a known y."""

    def summary(self) -> dict[str, Any]:
        """Return counts of the whole graph as plain numbers."""


def recorded_counts(held: GraphView) -> dict[str, int]:
    """Return what a run's record says of its graph: what a model that is made again must know."""
    return {"num_nodes": held.num_nodes, "num_edges": held.num_edges, "num_classes": held.num_classes}


class EdgeView(GraphView, Protocol):
    """The edges into each node of the whole graph, by its number: all of them, or those that are here.

    `num_edges` counts the latter.
    """

    @property
    def num_relations(self) -> int:
        """The relations of the whole graph."""

    @property
    def indices(self) -> Tensor:
        """The source of each edge, a global number, by destination as `indptr` [N + 1] has them."""

    @property
    def edge_type(self) -> Tensor | None:
        """The relation of each edge; None where there is one."""

    @property
    def device(self) -> torch.device:
        """Where the edges lie."""

    @property
    def is_plain(self) -> bool:
        """Whether there is one node type and relations have no names."""

    @property
    def transposed(self) -> kernels.Transposed:
        """The edges by source."""

    def in_degree(self) -> Tensor:
        """Return the edges into each node in the whole graph, [N]; 0 of those that no edge here touches."""

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return degrees in the whole graph, [N]; 0 of nodes that no edge here touches."""
