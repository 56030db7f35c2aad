"""Graphs with edges to hide."""

import torch
from torch import Tensor

from weft.graph import Graph


def weighted_graph(*, typed: bool) -> Graph:
    """Return an undirected graph with parallel edges, a self loop, weights and, if typed, relations."""
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(30, (2, 110), generator=made)
    edges = torch.cat([edges, edges[:, :15], torch.tensor([[3], [3]])], 1)
    count = edges.shape[1]
    twice = {
        "edge_weight": torch.rand(count, generator=made, dtype=torch.float64).repeat(2) + 0.1,
        "edge_attr": torch.randn(count, 3, generator=made, dtype=torch.float64).repeat(2, 1),
        "edge_type": torch.randint(3, (count,), generator=made).repeat(2) if typed else None,
    }
    x = torch.randn(30, 6, generator=made, dtype=torch.float64)
    relations = 3 if typed else None
    return Graph.from_edges(
        torch.cat([edges, edges.flip(0)], 1), num_nodes=30, x=x, num_relations=relations, **twice
    )


def removed(graph: Graph, edges: Tensor) -> Graph:
    """Return the graph built again without some canonical edges."""
    kept = torch.ones(graph.num_edges, dtype=torch.bool)
    kept[graph.edge_ids[edges].long()] = False
    kinds = graph.given_edge_type()
    return Graph.from_edges(
        graph.edge_index[:, kept],
        num_nodes=graph.num_nodes,
        x=graph.x,
        edge_type=None if kinds is None else kinds[kept],
        num_relations=graph.num_relations if kinds is not None else None,
        **{f"edge_{name}": value[kept] for name, value in graph.given_edge_data().items()},
    )
