"""Graphs by a formula, without features or labels: R-MAT, star, ring, grid.

Everything random is drawn by counter, so a graph is the same for a seed on any machine and any number of
threads.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.config import Range
from weft.datasets import datasets
from weft.draw import Stream, draw, fold
from weft.errors import GraphError
from weft.graph.graph import Graph

Count = Annotated[int, Range(least=1)]
Share = Annotated[float, Range(least=0, most=1)]
Ids = NDArray[np.int64]

# Four levels of the R-MAT quadtree are drawn at once: 256 outcomes from one 32-bit draw, 4.5 times fewer
# draws.
_LEVELS = 4
_CHUNK = 1 << 20


@datasets.add("rmat")
def rmat(
    *,
    scale: Annotated[int, Range(least=1, most=31)] = 14,
    edges: Annotated[int, Range(least=0)] = 200_000,
    a: Share = 0.57,
    b: Share = 0.19,
    c: Share = 0.19,
    seed: int = 0,
) -> Graph:
    """Return a directed R-MAT graph of 2^scale nodes (Chakrabarti 2004): skewed, with hubs at small ids.

    Each edge falls into a quadrant of the adjacency matrix with probabilities a, b, c and 1 - a - b - c,
    `scale` times over. Duplicate edges and self loops are kept, so the number of edges is exact.
    """
    if a + b + c > 1:
        raise GraphError(f"rmat: a + b + c must be at most 1, got {a:g} + {b:g} + {c:g}")
    edge_index = np.empty((2, edges), np.int64)
    for start in range(0, edges, _CHUNK):
        stop = min(start + _CHUNK, edges)
        edge_index[:, start:stop] = _rmat_edges(start, stop, scale, (a, b, c), seed)
    return Graph.from_edges(edge_index, num_nodes=1 << scale, check=False)


@datasets.add("star")
def star(*, nodes: Count = 1_000) -> Graph:
    """Return a star: node 0 joined with all others, both ways. One row holds half of all edges."""
    leaves = np.arange(1, nodes)
    return _undirected(np.zeros_like(leaves), leaves, nodes)


@datasets.add("ring")
def ring(*, nodes: Count = 1_000) -> Graph:
    """Return a ring: every node joined with the next, both ways."""
    src = np.arange(nodes)
    return _undirected(src, (src + 1) % nodes, nodes)


@datasets.add("grid")
def grid(*, rows: Count = 32, columns: Count = 32) -> Graph:
    """Return a grid: node r · columns + c joined with its right and lower neighbour, both ways."""
    ids = np.arange(rows * columns).reshape(rows, columns)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    dst = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    return _undirected(src, dst, rows * columns)


def _undirected(src: Ids, dst: Ids, num_nodes: int) -> Graph:
    pairs = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])])
    # Rings of one and two nodes meet themselves: no self loops, every edge once.
    kept = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
    return Graph.from_edges(kept, num_nodes=num_nodes)


def _rmat_edges(start: int, stop: int, scale: int, shares: tuple[float, float, float], seed: int) -> Ids:
    """Return edges start … stop - 1 of an R-MAT graph, [2, stop - start]."""
    ids = np.arange(start, stop)
    key = fold(seed, Stream.SYNTHETIC)
    edges = np.zeros((2, stop - start), np.int64)
    for lane, done in enumerate(range(0, scale, _LEVELS)):
        levels = min(_LEVELS, scale - done)
        ends, rows, columns = _quadrants(levels, shares)
        cell = np.searchsorted(ends, draw(key, ids, lane).astype(np.float64) * 2.0**-32, side="right")
        edges[0] = (edges[0] << levels) | rows[cell]
        edges[1] = (edges[1] << levels) | columns[cell]
    return edges


def _quadrants(levels: int, shares: tuple[float, float, float]) -> tuple[NDArray[np.float64], Ids, Ids]:
    """Return the upper end of each cell's share of [0, 1), and its row and column, after some levels."""
    one = np.array([*shares, 1.0 - sum(shares)])
    probability, rows, columns = np.ones(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for _ in range(levels):
        probability = np.outer(probability, one).ravel()
        rows = ((rows[:, None] << 1) | np.array([0, 0, 1, 1])).ravel()
        columns = ((columns[:, None] << 1) | np.array([0, 1, 0, 1])).ravel()
    return np.cumsum(probability)[:-1], rows, columns
