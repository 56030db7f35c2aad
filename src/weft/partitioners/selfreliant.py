"""Self-reliant parts (PaGraph, SoCC 2020): training nodes that read the same neighbourhoods go together.

A worker that holds, beside its own nodes, copies of all that L layers on its training nodes read never leaves
them in training: `closed` of the strategy `sampled`, or `weft.graph.parts.closure.close` by hand. Training
nodes are streamed; v goes to the part with the largest |T ∩ N(v)| · (mean − |T|) / |P|, where N(v) is what
reaches v in L hops, T the training nodes of the part and P all nodes it holds: redundancy stays small,
training load even.
"""

from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.config import Range
from weft.graph.graph import Graph
from weft.partitioners.base import Partitioner, partitioners, train_rows

Ints = NDArray[np.int64]


@partitioners.add("selfreliant")
class SelfReliantPartitioner(Partitioner):
    """Put training nodes that read the same neighbourhoods together, for parts that hold all they read."""

    closes: ClassVar[bool] = True

    def __init__(self, *, hops: Annotated[int, Range(least=1)] = 2, seed: int = 0) -> None:
        """`hops` are the layers of the model that will be trained."""
        super().__init__(seed=seed)
        self.hops = hops

    def assign(self, graph: Graph, num_parts: int) -> Tensor:
        """Return the part of each node; without a training mask all count as trained on."""
        train = train_rows(graph)
        seeds = (train if bool(train.any()) else torch.ones_like(train)).nonzero().flatten().numpy()
        parts = np.full(graph.num_nodes, -1, dtype=np.int32)
        held = np.zeros((num_parts, graph.num_nodes), dtype=bool)
        trained = np.zeros(num_parts, dtype=np.int64)
        stored = np.zeros(num_parts, dtype=np.int64)
        reader = _Reach(graph, self.hops)
        for node in seeds.tolist():
            near = reader.reach(node)
            there = parts[near]
            common = np.bincount(there[there >= 0], minlength=num_parts)
            score = common * (len(seeds) / num_parts - trained) / np.maximum(stored, 1)
            best = score == score.max() if score.max() > 0 else np.ones(num_parts, dtype=bool)
            part = int(np.flatnonzero(best)[np.argmin(trained[best])])  # the least loaded, then the first
            parts[node] = part
            trained[part] += 1
            stored[part] += int((~held[part, near]).sum())
            held[part, near] = True
        return torch.from_numpy(_place_others(parts, held))


class _Reach:
    """What reaches a node in some hops."""

    def __init__(self, graph: Graph, hops: int) -> None:
        self.indptr, self.indices = graph.indptr.numpy(), graph.indices.long().numpy()
        self.hops = hops

    def reach(self, node: int) -> Ints:
        found = frontier = np.array([node])
        for _ in range(self.hops):
            starts, counts = self.indptr[frontier], self.indptr[frontier + 1] - self.indptr[frontier]
            shift = np.repeat(starts - (np.cumsum(counts) - counts), counts)
            sources = np.unique(self.indices[np.arange(counts.sum()) + shift])
            frontier = np.setdiff1d(sources, found, assume_unique=True)
            found = np.union1d(found, frontier)
        return found


def _place_others(parts: NDArray[np.int32], held: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Give nodes that are not trained on to a part that holds them anyway; others to the smallest."""
    counts = np.bincount(parts[parts >= 0], minlength=len(held))
    for node in np.flatnonzero(parts < 0).tolist():
        holders = np.flatnonzero(held[:, node])
        among = holders if len(holders) else np.arange(len(held))
        part = among[np.argmin(counts[among])]
        parts[node] = part
        counts[part] += 1
    return parts
