"""Which rows a cache should hold: a score a node, the larger the sooner it is kept.

A row is read when its node is drawn as a source, so what counts is how often sampled neighbourhoods reach a
node. Out-degree (PaGraph) is a first guess and costs nothing; k-hop importance (AliGraph) weighs readers
against what a node itself depends on; the frequency in a few sampled epochs is the thing itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import kernels
from weft.draw import Stream, fold, permutation
from weft.errors import InputError
from weft.graph.graph import Graph
from weft.samplers.base import Sampler
from weft.samplers.loader import Loader


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
    loader = Loader(sampler, seeds, batch_size=batch_size, threads=0)
    degree = out_degree(sampler.graph)
    return reads(lambda epoch, step: loader.batch(epoch, step).nodes, len(loader), degree, epochs=epochs)


def reads(nodes: Callable[[int, int], Tensor], steps: int, degree: Tensor, *, epochs: int = 3) -> Tensor:
    """Return how often each node is among `nodes(epoch, step)`, [N], ties by `degree` [N]."""
    counts = torch.zeros(len(degree), dtype=torch.float64)
    for epoch in range(epochs):
        for step in range(steps):
            counts += torch.bincount(nodes(_FAR + epoch, step), minlength=len(counts))
    return counts + degree / (1.0 + float(degree.max() if len(degree) else 0.0))


_FAR = 1 << 30  # an epoch that no run reaches: the cache must not be judged by the draws that filled it


def random_order(graph: Graph, seed: int = 0) -> Tensor:
    """Return random scores [N]: what a ranker has to beat."""
    return torch.from_numpy(permutation(fold(seed, Stream.SHUFFLE), graph.num_nodes).astype(np.float64))


def _paths(indptr: Tensor, indices: Tensor, num_nodes: int, hops: int) -> Tensor:
    total = torch.zeros(num_nodes, dtype=torch.float64)
    ends = torch.ones(num_nodes, 1, dtype=torch.float64)
    for _ in range(hops):
        ends = kernels.spmm(indptr, indices, ends)
        total += ends.flatten()
    return total
