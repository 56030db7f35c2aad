"""What a partitioner is, and what several of them need: an undirected view of the graph, counts of nodes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Cuts
from weft.graph.sorting import distinct, sort_keys
from weft.registry import Registry

partitioners: Registry[type["Partitioner"]] = Registry("partitioner", "weft.partitioners")


class Partitioner(ABC):
    """A way of assigning nodes, or edges, to parts. Options, the seed among them, go to the constructor."""

    closes: ClassVar[bool] = False
    """Whether its parts are for workers that hold all that their training nodes read."""
    cuts: ClassVar[Cuts] = "nodes"
    """"nodes": `assign` gives the part of each node. "edges": that of each edge, in canonical order."""

    for_clusters: ClassVar[Mapping[str, Any]] = {}
    """The options that cut clusters: parts many and small, so quickly."""
    isolated: ClassVar[bool] = True
    """Whether it runs in a child process; false only where there is nothing that could crash or take long."""

    watch: Callable[[float], None] | None = None
    """Is told which share of the work is done, where somebody asks and the partitioner knows."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def told(self, done: float, of: float) -> None:
        """Tell who asks that so much of so much is done."""
        if self.watch is not None:
            self.watch(min(done / max(of, 1), 1.0))

    @abstractmethod
    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node [N], or of each edge [E], int32 in 0 … num_parts − 1."""


class Undirected(NamedTuple):
    """Neighbours of each node whatever the direction, once each, without the node itself."""

    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int64]  # [2 · pairs] ascending in a row


def undirected(graph: Graph) -> Undirected:
    """Return the graph as libraries for undirected graphs need it: symmetric, no loops, no duplicates."""
    src, dst = graph.indices.long(), edge_destinations(graph.indptr)
    kept = src != dst
    low, high = torch.minimum(src, dst)[kept], torch.maximum(src, dst)[kept]
    pairs = distinct(low * graph.num_nodes + high)
    low, high = pairs // graph.num_nodes, pairs % graph.num_nodes
    keys = sort_keys(torch.cat([pairs, high * graph.num_nodes + low]))
    indptr = torch.searchsorted(keys, torch.arange(graph.num_nodes + 1) * graph.num_nodes)
    return Undirected(indptr.numpy(), (keys % graph.num_nodes).numpy())


def train_rows(graph: Graph) -> Tensor:
    """Return which nodes are trained on, [N] bool; none where there is no mask."""
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool)
    if graph.train_mask is not None:
        chosen[graph.target_rows] = graph.train_mask
    return chosen
