"""Which rows a cache should hold: one score per node, the larger the sooner it is kept.

A row is read when its node is drawn as a source, so what counts is how often sampled neighbourhoods reach a
node. Out-degree (PaGraph) is a first guess and costs nothing; k-hop importance (AliGraph) weighs readers
against what a node itself depends on; the frequency in a few sampled epochs is the thing itself. A ranker of
your own is a function `(graph, group, reads) -> scores [N]` under `@rankers.add("name")`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.draw import Stream, fold, permutation
from weft.errors import InputError, RecipeError
from weft.graph.graph import Graph
from weft.registry import Registry
from weft.samplers.base import Sampler
from weft.samplers.loader import Loader
from weft.samplers.workers import replicas

Reads = tuple[Callable[[int, int], Tensor], int]
"""The nodes that this rank reads in a step of an epoch, and the number of steps."""


class RankedEdges(replicas.HeldEnds, Protocol):
    """What rankers read of a graph: of all of it, or of what a rank holds."""

    def own_out_degrees(self) -> tuple[Tensor, Tensor]:
        """Return the global ids of the rows that are here, and the edges of the whole graph out of each."""


Ranker = Callable[[RankedEdges, Group, Callable[[], Reads] | None], Tensor]
rankers: Registry[Ranker] = Registry("ranker", "weft.stores")
_PLAN = Label("plan")
_FAR = 1 << 30  # an epoch that no run reaches: the cache must not be judged by the draws that filled it


def out_degree(graph: Graph) -> Tensor:
    """Return the number of edges out of each node [N]: how many rows could ask for it (PaGraph)."""
    return graph.out_degree().double()


def importance(graph: Graph, hops: int = 2) -> Tensor:
    """Return (paths of 1 … `hops` edges out of a node) / (paths into it), [N] (AliGraph).

    AliGraph reads along edges, weft's samplers against them: its in-neighbours, who read a node, are the
    targets of our edges. Nodes without edges into them count as having one.
    """
    if hops < 1:
        raise InputError(f"hops must be at least 1, got {hops}")
    back = graph.transposed
    readers = _paths(back.indptr, back.indices, graph.num_nodes, hops)
    needed = _paths(graph.indptr, graph.indices, graph.num_nodes, hops)
    return readers / needed.clamp(min=1.0)


def frequency(sampler: Sampler, seeds: Any = None, *, epochs: int = 3, batch_size: int = 1024) -> Tensor:
    """Return how often each node is a row of a batch, [N], in epochs that training will not draw itself.

    In an epoch a node has one sample, so several are needed to tell a habit from chance. Nodes that were
    never drawn are ordered by out-degree.
    """
    edges: Any = sampler.graph
    return _frequency(drawn_by(sampler, seeds, batch_size), out_degree(edges), epochs)


def drawn_by(sampler: Sampler, seeds: Any = None, batch_size: int = 1024) -> Reads:
    """Return what the batches of a sampler read."""
    loader = Loader(sampler, seeds, batch_size=batch_size, threads=0)
    return lambda epoch, step: loader.batch(epoch, step).nodes, len(loader)


def random_order(num_nodes: int, seed: int = 0) -> Tensor:
    """Return random scores [N]: what a ranker has to beat."""
    return torch.from_numpy(permutation(fold(seed, Stream.SHUFFLE), num_nodes).astype(np.float64))


@rankers.add("out_degree")
def _by_out_degree(graph: RankedEdges, group: Group, reads: Callable[[], Reads] | None) -> Tensor:
    return _degree(graph, group)


@rankers.add("importance")
def _by_importance(graph: RankedEdges, group: Group, reads: Callable[[], Reads] | None) -> Tensor:
    return replicas.importance(graph, group, hops=2)


@rankers.add("frequency")
def _by_frequency(graph: RankedEdges, group: Group, reads: Callable[[], Reads] | None) -> Tensor:
    degree = _degree(graph, group)
    if reads is None:
        raise RecipeError("store.ranker: 'frequency' needs a strategy that samples; use 'out_degree'")
    return _frequency(reads(), degree)


@rankers.add("random")
def _by_chance(graph: RankedEdges, group: Group, reads: Callable[[], Reads] | None) -> Tensor:
    return random_order(graph.num_nodes, group.rank)


def _frequency(reads: Reads, degree: Tensor, epochs: int = 3) -> Tensor:
    """Return how often each node is read, [N], ties by `degree` [N]."""
    nodes, steps = reads
    counts = torch.zeros(len(degree), dtype=torch.float64)
    for epoch in range(epochs):
        for step in range(steps):
            counts += torch.bincount(nodes(_FAR + epoch, step), minlength=len(counts))
    # Below 1, so that degrees only decide among nodes that were read equally often.
    return counts + degree / (1.0 + float(degree.max() if len(degree) else 0.0))


def _degree(graph: RankedEdges, group: Group) -> Tensor:
    """Return the out-degree of every node, [N], from those that each rank holds."""
    own, degrees = graph.own_out_degrees()
    ids, counts = group.gather_unequal(own, label=_PLAN)
    degree = torch.zeros(graph.num_nodes, dtype=torch.float64)
    degree[ids] = group.all_gather(degrees.double().contiguous(), counts, label=_PLAN).wait()
    return degree


def _paths(indptr: Tensor, indices: Tensor, num_nodes: int, hops: int) -> Tensor:
    total = torch.zeros(num_nodes, dtype=torch.float64)
    ends = torch.ones(num_nodes, 1, dtype=torch.float64)
    for _ in range(hops):
        ends = kernels.spmm(indptr, indices, ends)
        total += ends.flatten()
    return total
