"""A graph with hubs."""

import numpy as np

from weft.graph import Graph


def skewed_graph(num_nodes: int = 400, num_edges: int = 12_000) -> Graph:
    """Return a graph in which few nodes have most of the edges."""
    made = np.random.default_rng(0)
    src = (num_nodes * made.random(num_edges) ** 2).astype(np.int64)
    return Graph.from_edges(np.stack([src, made.integers(num_nodes, size=num_edges)]), num_nodes=num_nodes)
