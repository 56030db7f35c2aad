"""Graphs that the tests of flattening share."""

from typing import Any

import numpy as np
import torch

import weft


def plain_graph() -> weft.Graph:
    """Return a graph with hubs, loops, repeated edges and isolated nodes."""
    draw = np.random.default_rng(3)
    edges = np.stack([draw.integers(0, 60, 900), (draw.random(900) ** 3 * 50).astype(np.int64)])
    y = torch.from_numpy(draw.integers(0, 3, 60))
    train = torch.arange(60) < 25
    return weft.Graph.from_edges(edges, num_nodes=60, x=torch.randn(60, 3), y=y, train_mask=train)


def numbered_graph() -> weft.Graph:
    """Return a graph of one node type and numbered relations."""
    graph = plain_graph()
    kinds = torch.arange(graph.num_edges) % 3
    return weft.Graph.from_edges(graph.edge_index, num_nodes=60, y=graph.y, edge_type=kinds)


def typed_graph() -> weft.Graph:
    """Return a graph of two node types and three relations."""
    draw = np.random.default_rng(4)

    def pairs(src: int, dst: int) -> Any:
        return np.stack([draw.integers(0, src, 120), draw.integers(0, dst, 120)])

    nodes = {"a": {"num_nodes": 30, "y": np.arange(30) % 2}, "b": {"num_nodes": 20}}
    edges = {("a", "r", "a"): pairs(30, 30), ("b", "s", "a"): pairs(20, 30), ("a", "t", "b"): pairs(30, 20)}
    return weft.Graph.from_types(nodes, edges)


def with_times(graph: weft.Graph) -> weft.Graph:
    """Return the graph with times of edges and nodes, and weights of edges of which some are 0."""
    draw = np.random.default_rng(5)
    weight = torch.from_numpy(draw.integers(0, 4, graph.num_edges).astype(np.float32))
    time = torch.from_numpy(draw.integers(0, 50, graph.num_edges))
    kinds = None if graph.edge_type is None else torch.arange(graph.num_edges) % 3
    moments = torch.from_numpy(draw.integers(0, 60, graph.num_nodes))
    data = {"edge_weight": weight, "edge_time": time, "edge_type": kinds, "y": graph.y}
    return weft.Graph.from_edges(graph.edge_index, num_nodes=graph.num_nodes, **data).with_data(time=moments)


def typed_with_times() -> weft.Graph:
    """Return a graph of two node types with times and weights."""
    draw = np.random.default_rng(6)

    def edges(src: int, dst: int) -> dict[str, Any]:
        pairs = np.stack([draw.integers(0, src, 150), draw.integers(0, dst, 150)])
        times = draw.integers(0, 50, 150)
        return {"edge_index": pairs, "edge_weight": draw.random(150).astype(np.float32), "edge_time": times}

    nodes = {
        "a": {"num_nodes": 30, "y": np.arange(30) % 2, "time": draw.integers(0, 60, 30)},
        "b": {"num_nodes": 20},
    }
    kinds = {("a", "r", "a"): edges(30, 30), ("b", "s", "a"): edges(20, 30), ("a", "t", "b"): edges(30, 20)}
    return weft.Graph.from_types(nodes, kinds)
