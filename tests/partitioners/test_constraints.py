"""What is balanced, and the bound on it."""

import numpy as np
import torch

from weft.graph import Graph
from weft.partitioners.constraints import constraints


def test_a_bound_is_above_the_mean_by_the_imbalance_or_by_one_or_one_node() -> None:
    star = Graph.from_edges([list(range(1, 101)), [0] * 100], num_nodes=200)
    limits = constraints(star, 4, 0.1)
    assert limits.names == ["nodes", "edges"]
    assert limits.bounds.tolist() == [55, 100]  # 1.1 · 50; one node has all edges
    assert constraints(star, 150, 0.1).bounds[0] == 2  # 1.33 + 1


def test_balance_is_the_largest_over_the_mean_and_what_is_broken_is_told_with_its_numbers() -> None:
    pairs = Graph.from_edges([[0, 1, 2, 3], [1, 0, 3, 2]], num_nodes=8)
    limits = constraints(pairs, 2, 0.03)
    parts = np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int32)
    assert limits.balance(parts).tolist() == [7 / 4, 2.0]
    assert limits.loads(parts).tolist() == [[7, 1], [4, 0]]
    assert limits.broken(parts) == [
        "nodes 7 in one part, at most 5 (1.25 x the mean)",
        "edges 4 in one part, at most 3 (1.50 x the mean)",
    ]
    assert limits.excess(parts) == 2 / 4 + 1 / 2


def test_sets_and_node_types_count_and_nodes_alone_on_request() -> None:
    masks = {"train_mask": torch.arange(6) < 2, "test_mask": torch.arange(6) == 5}
    graph = Graph.from_types(
        {"a": {"num_nodes": 6, "y": [0] * 6, **masks}, "b": {"num_nodes": 2}},
        {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])},
    )
    limits = constraints(graph, 2, 0.03)
    assert limits.names == [
        "nodes",
        "edges",
        "train nodes",
        "test nodes",
        "nodes of type 'a'",
        "nodes of type 'b'",
    ]
    assert limits.weights.sum(1).tolist() == [8, 2, 2, 1, 6, 2]
    assert constraints(graph, 2, 0.03, "nodes").names == ["nodes"]


def test_a_graph_without_edges_or_sets_is_balanced_by_nodes() -> None:
    lone = constraints(Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=4), 2, 0.03)
    assert lone.names == ["nodes"]
    assert lone.balance(np.array([0, 0, 1, 1], np.int32)).tolist() == [1.0]
