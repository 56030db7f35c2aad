"""Negatives: nodes that an edge might have led to and does not, drawn by counters.

The negatives of an edge are a function of (seed, epoch, edge): the same in any batch, in one process or many.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import Stream, fold, row_keys
from weft.errors import GraphError, InputError
from weft.graph.degrees import edge_destinations
from weft.graph.graph import Graph
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.samplers.pool import Bools, Ints, Pool


class NegativeSampler:
    """Draw `count` targets for each source: uniform over nodes, by in-degree^0.75 ("degree"), or by `weight`.

    `weight` [N] is a number per node; one of weight 0 is never drawn. With `condition` [N], a number per
    node, negatives have that of the edge's own target: other goods of the same category, say. (Both are
    AliGraph's.) `exclude` leaves out targets that the source has an edge to, and the source itself. Targets
    are of the type of the edge's own target where there are several node types.

    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]])
    >>> NegativeSampler(graph, 1).sample(torch.tensor([0, 1, 2])).tolist()    # the one node left
    [[1], [2], [0]]
    """

    def __init__(
        self,
        graph: Graph,
        count: int = 1,
        *,
        by: Literal["uniform", "degree", "weight"] = "uniform",
        weight: Any = None,
        condition: Any = None,
        exclude: bool = True,
        seed: int = 0,
    ) -> None:
        if by not in ("uniform", "degree", "weight"):
            raise InputError(f"by must be 'uniform', 'degree' or 'weight', got {by!r}")
        if (by == "weight") is (weight is None):
            raise InputError("weight, one number per node, goes with by='weight'")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"count must be a whole number of at least 1, got {count!r}")
        self.graph, self.count, self.by, self.exclude, self.seed = graph, count, by, exclude, seed
        self.edge_dst = edge_destinations(graph.indptr)  # [E] of canonical edges
        self._known = Known.of(graph, relations=False) if exclude else None
        self._group = self._groups(condition)  # [N] of which negatives of a target are drawn
        self._pool = Pool.of_groups(self._group, self._weights(weight))

    def sample(self, edges: Tensor, epoch: int = 0) -> Tensor:
        """Return targets [n, count] that are none of the edges' sources' own; edges by canonical place."""
        edges = edges.long()
        sources = self.graph.indices[edges].long()
        return self.draw(edges, sources, self.edge_dst[edges], epoch=epoch)

    def __call__(self, pairs: Pairs, epoch: int = 0, step: int = 0, *, batch: Pairs | None = None) -> Tensor:
        """Return targets [n, count] of pairs, told apart by their keys; the same in any step and batch."""
        return self.draw(pairs.keys, pairs.src, pairs.dst, epoch=epoch)

    def draw(self, keys: Tensor, sources: Tensor, targets: Tensor, *, epoch: int = 0) -> Tensor:
        """Return targets [n, count] for sources; `keys` [n] are what the draws are told apart by."""
        rows = row_keys(fold(self.seed, Stream.NEGATIVE, epoch), keys.numpy())
        low, high = self._pool.ranges(self._group[targets.numpy()])
        empty = self._pool.empty(low, high)
        if empty.any():
            target = int(targets[torch.from_numpy(empty)][0])
            raise GraphError(f"weight: all nodes that could stand for node {target} weigh nothing")
        drawn, free = self._pool.draw(
            rows, self.count, low, high, lambda row, nodes: self._taken(sources[row], nodes)
        )
        if not free.all():
            source = int(sources[int(np.flatnonzero(~free.all(1))[0])])
            raise GraphError(
                f"node {source} has an edge to every node that could be drawn: it has no negatives; "
                "exclude=False"
            )
        return torch.from_numpy(drawn)

    def _weights(self, weight: Any) -> NDArray[np.float64] | None:
        if self.by == "uniform":
            return None
        if self.by == "degree":
            powers: NDArray[np.float64] = self.graph.in_degree().double().pow(0.75).numpy()
            return powers
        weights: NDArray[np.float64] = _row_per_node(self.graph, weight, "weight").double().numpy()
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise GraphError("weight: expected finite numbers of at least 0")
        return weights

    def _groups(self, condition: Any) -> Ints:
        """Return one number per node: of its type and, where given, its condition."""
        kinds = np.repeat(np.arange(len(self.graph.node_types)), np.diff(self.graph.node_offsets))
        if condition is None:
            return kinds
        numbers = _row_per_node(self.graph, condition, "condition")
        if numbers.is_floating_point():
            raise GraphError(f"condition: expected a whole number per node, got {numbers.dtype}")
        pairs = np.stack([kinds, numbers.long().numpy()], 1)
        groups: Ints = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        return groups

    def _taken(self, sources: Tensor, targets: Ints) -> Bools:
        if self._known is None:
            return np.zeros(len(targets), dtype=bool)
        nodes = torch.from_numpy(targets)
        taken: Bools = (self._known.hits(sources, nodes) | (sources == nodes)).numpy()
        return taken


def _row_per_node(graph: Graph, of_nodes: Any, name: str) -> Tensor:
    values = torch.as_tensor(of_nodes).cpu()
    if values.shape != (graph.num_nodes,):
        shape = list(values.shape)
        raise GraphError(f"{name}: expected {graph.num_nodes:,} values, one a node, got shape {shape}")
    return values
