"""Graphs that the tests of samplers share."""

from typing import Any

import torch

from weft.graph import Graph

AUTHOR = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def random_graph(num_nodes: int = 60, num_edges: int = 900, **data: Any) -> Graph:
    """Return a graph of random edges; three nodes have none."""
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(num_nodes - 3, (2, num_edges), generator=made)  # three nodes have no edges
    return Graph.from_edges(edges, num_nodes=num_nodes, **data)


def typed_graph() -> Graph:
    """Return a graph of authors and papers."""
    made = torch.Generator().manual_seed(2)
    writes = torch.stack([torch.randint(10, (60,), generator=made), torch.randint(15, (60,), generator=made)])
    cites = torch.randint(15, (2, 90), generator=made)
    nodes = {"author": {"x": torch.rand(10, 3)}, "paper": {"x": torch.rand(15, 4), "y": [0, 1, 0] * 5}}
    return Graph.from_types(nodes, {AUTHOR: writes, CITES: cites})
