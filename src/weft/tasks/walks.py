"""Random walks along the edges of a graph, and the pairs of nodes that meet on them."""

import numpy as np
import torch

from weft.draw import Stream, fold, uniform
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.samplers.core.in_edges import InEdges


def walk_pairs(graph: Graph, *, length: int, walks: int, seed: int = 0) -> Pairs:
    """Return each node with the nodes that it meets on `walks` walks of `length` steps from it, itself apart.

    A step leaves a node by one of its edges, from source to target, each copy with the same chance. A walk
    ends where no edge leaves; a node without one has no pair. A step is a function of (seed, node, walk,
    step), whatever the order of edges in memory.

    >>> pairs = walk_pairs(Graph.from_edges([[0, 1], [1, 2]]), length=3, walks=1)
    >>> pairs.src.tolist(), pairs.dst.tolist()
    ([0, 1, 0], [1, 2, 2])
    """
    back = graph.transposed  # incoming edges of the graph turned round: those that leave
    topology = InEdges(back.indptr.cpu().long(), back.indices.cpu())
    leaving = topology.degree.numpy() > 0
    start = np.repeat(np.flatnonzero(leaving), walks)
    walk = np.tile(np.arange(walks), len(start) // walks)
    key = fold(seed, Stream.WALK)
    met: list[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]] = []
    now = start
    for step in range(length):
        going = leaving[now]
        start, walk, now = start[going], walk[going], now[going]
        now = topology.follow(now, uniform(key, start, walk * length + step))
        other = now != start
        met.append((start[other], now[other]))
    src, dst = (torch.from_numpy(np.concatenate(ends)) for ends in zip(*met))
    return Pairs(src, dst)
