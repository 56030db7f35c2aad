"""What a partition is to balance, all of it at once, and the bound on each.

    nodes              one a node
    edges              the edges into a node, which is where they are summed
    train, val, test   nodes of each set, where the graph has it
    node types         nodes of each type, of the `MOST_TYPES` largest ones

No part may hold more of anything than (1 + imbalance) times the mean, or than one above the mean where that
is more (a count is no finer), or than the heaviest node (it is not divided).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from weft.graph.graph import Graph

Balance = Literal["all", "nodes"]
Parts = NDArray[np.int32]
MOST_TYPES = 8
_SETS = ("train", "val", "test")


@dataclass(frozen=True)
class Constraints:
    """Weights of nodes in everything that is balanced, and the most that a part may hold of it."""

    names: list[str]
    weights: NDArray[np.int64]
    """[C, N]"""
    bounds: NDArray[np.int64]
    """[C]"""
    num_parts: int

    def loads(self, parts: Parts) -> NDArray[np.int64]:
        """Return what each part holds, [C, num_parts]."""
        held = [np.bincount(parts, weight, self.num_parts) for weight in self.weights]
        return np.rint(held).astype(np.int64).reshape(len(self.names), self.num_parts)

    def balance(self, parts: Parts) -> NDArray[np.float64]:
        """Return the largest part over the mean one, [C]."""
        balance: NDArray[np.float64] = self.loads(parts).max(1) / self.mean
        return balance

    def excess(self, parts: Parts) -> float:
        """Return by how much bounds are passed, in mean parts, summed over parts: 0 where all are kept."""
        over = np.maximum(self.loads(parts) - self.bounds[:, None], 0)
        return float((over / self.mean[:, None]).sum())

    @property
    def mean(self) -> NDArray[np.float64]:
        """What a part holds on average, [C]."""
        mean: NDArray[np.float64] = self.weights.sum(1) / self.num_parts
        return mean

    def broken(self, parts: Parts) -> list[str]:
        """Return a phrase for each bound that a part passes: 'edges 142 in one part, at most 103 (…)'."""
        largest = self.loads(parts).max(1)
        return [
            f"{name} {most:,} in one part, at most {bound:,} ({bound / mean:.2f} x the mean)"
            for name, most, bound, mean in zip(self.names, largest, self.bounds, self.mean)
            if most > bound
        ]


def constraints(graph: Graph, num_parts: int, imbalance: float, balance: Balance = "all") -> Constraints:
    """Return what is balanced in this graph: everything, or the nodes alone."""
    counted = {"nodes": torch.ones(graph.num_nodes, dtype=torch.int64)}
    if balance == "all":
        counted |= {"edges": graph.indptr.diff(), **_sets(graph), **_types(graph)}
    present = {name: weight.numpy().astype(np.int64) for name, weight in counted.items() if weight.any()}
    weights = np.stack(list(present.values()))
    mean = weights.sum(1) / num_parts
    bounds = np.maximum(np.maximum((1 + imbalance) * mean, mean + 1), weights.max(1))
    # A product such as 1.03 · 100 may fall a hair below the whole number that it is.
    return Constraints(list(present), weights, np.floor(bounds + 1e-9).astype(np.int64), num_parts)


def _sets(graph: Graph) -> dict[str, torch.Tensor]:
    chosen = {}
    for name in _SETS:
        mask = getattr(graph, f"{name}_mask")
        if mask is not None:
            chosen[f"{name} nodes"] = torch.zeros(graph.num_nodes, dtype=torch.bool)
            chosen[f"{name} nodes"][graph.target_rows] = mask
    return chosen


def _types(graph: Graph) -> dict[str, torch.Tensor]:
    if len(graph.node_types) < 2:
        return {}
    sizes = {
        kind: len(range(*graph.rows_of_type(kind).indices(graph.num_nodes))) for kind in graph.node_types
    }
    largest = sorted(sizes, key=lambda kind: -sizes[kind])[:MOST_TYPES]
    chosen = {}
    for kind in largest:
        chosen[f"nodes of type {kind!r}"] = torch.zeros(graph.num_nodes, dtype=torch.bool)
        chosen[f"nodes of type {kind!r}"][graph.rows_of_type(kind)] = True
    return chosen
