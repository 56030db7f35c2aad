"""A ring whose nodes have numbers."""

import torch

import weft


def ring(nodes: int = 60, **data: object) -> weft.Graph:
    """A ring whose nodes have numbers that two features tell."""
    at = torch.arange(nodes)
    torch.manual_seed(0)
    x = torch.randn(nodes, 2)
    part = at % 3
    given = {"x": x, "y": 1000.0 + 50.0 * x[:, 0] - 20.0 * x[:, 1]}
    given |= {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    edges = torch.stack([at, (at + 1) % nodes])
    return weft.Graph.from_edges(torch.cat([edges, edges.flip(0)], 1), **(given | data))
