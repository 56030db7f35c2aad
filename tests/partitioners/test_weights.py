"""The search for one weight that balances three things."""

import numpy as np
import torch

from weft.graph import Graph
from weft.partitioners.weights import Combined, search

# Nodes 0 and 1 receive all edges, nodes 2 and 3 are the training nodes.
GRAPH = Graph.from_edges(
    [[4, 5, 6, 7, 4, 5, 6, 7], [0, 0, 0, 0, 1, 1, 1, 1]],
    y=[0] * 8,
    train_mask=torch.tensor([False, False, True, True, False, False, False, False]),
)


def test_weights_are_shares_of_means() -> None:
    weight = Combined(GRAPH, 2).weight((1.0, 1.0, 2.0))
    # in-degree 4 against a mean of 1; a training node against a mean of 1/4
    assert weight.tolist() == [125, 125, 225, 225, 25, 25, 25, 25]


def test_balance_is_the_largest_over_the_mean() -> None:
    parts = np.array([0, 0, 1, 0, 1, 1, 1, 1], dtype=np.int32)
    assert Combined(GRAPH, 2).balance(parts) == (5 / 4, 2.0, 1.0)


def test_the_best_balance_wins_unless_it_costs_too_much() -> None:
    even = np.array([0, 1, 0, 1, 0, 1, 0, 1], dtype=np.int32)
    skewed = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int32)

    def divide(weight: object) -> np.ndarray:
        return skewed if weight is None else even

    def found(price: float, total: int = 0) -> list[int]:
        cost = {tuple(skewed): 100.0, tuple(even): price}
        best = search(
            Combined(GRAPH, 2), divide, lambda parts: cost[tuple(parts)], tries=4, max_rise=0.15, total=total
        )
        return best.parts.tolist()

    assert found(110.0) == even.tolist()
    assert found(120.0) == skewed.tolist()
    assert found(120.0, total=20_000) == even.tolist()  # both cut next to nothing


def test_a_graph_without_edges_or_training_nodes_is_balanced_by_nodes() -> None:
    lone = Combined(Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=4), 2)
    assert lone.weight((1.0, 0.0, 0.0)).tolist() == [100] * 4
    assert lone.balance(np.array([0, 0, 1, 1], dtype=np.int32)) == (1.0, 1.0, 1.0)
