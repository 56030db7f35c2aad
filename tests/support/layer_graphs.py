"""A graph that the tests of PyG's convolutions share."""

import torch

import weft


def some_graph(**data: object) -> weft.Graph:
    """Return a graph without parallel edges and loops, one node isolated."""
    torch.manual_seed(2)
    edges = torch.unique(torch.randint(0, 11, (2, 40)), dim=1)
    edges = edges[:, edges[0] != edges[1]]
    if data.get("edge_attr"):
        data["edge_attr"] = torch.rand(edges.shape[1], 3)
    return weft.Graph.from_edges(edges, num_nodes=12, x=torch.randn(12, 6), **data)
