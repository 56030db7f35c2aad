"""The search for one weight that balances several things, and the choice among partitions."""

import numpy as np
import torch

from weft.graph import Graph
from weft.partitioners.base import undirected
from weft.partitioners.constraints import constraints
from weft.partitioners.weights import best, combined, searched

# Nodes 0 and 1 receive all edges, nodes 2 and 3 are the training nodes.
GRAPH = Graph.from_edges(
    [[4, 5, 6, 7, 4, 5, 6, 7], [0, 0, 0, 0, 1, 1, 1, 1]],
    y=[0] * 8,
    train_mask=torch.tensor([False, False, True, True, False, False, False, False]),
)


def test_weights_are_shares_of_means() -> None:
    limits = constraints(GRAPH, 2, 0.03)
    assert limits.names == ["nodes", "edges", "train nodes"]
    # in-degree 4 against a mean of 1; a training node against a mean of 1/4
    assert combined(limits, np.array([1.0, 1.0, 2.0])).tolist() == [125, 125, 225, 225, 25, 25, 25, 25]


def test_the_search_starts_from_nodes_and_ends_once_every_bound_is_kept() -> None:
    limits = constraints(GRAPH, 2, 0.03)
    skewed, even = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32), np.array([0, 1, 0, 1, 0, 1, 0, 1], np.int32)
    given: list[list[int] | None] = []

    def divide(weight: np.ndarray | None) -> np.ndarray:
        given.append(None if weight is None else weight.tolist())
        return skewed if len(given) < 3 else even

    assert [parts.tolist() for parts in searched(limits, divide, tries=9)] == [
        skewed.tolist(),
        skewed.tolist(),
        even.tolist(),
    ]
    assert given[0] is None
    assert given[1] == combined(limits, np.ones(3)).tolist()
    # edges (2 x the mean, as training nodes are) are lifted before the third
    assert given[2] == combined(limits, np.array([1.0, 2.0, 2.0])).tolist()


def test_the_cheapest_partition_within_bounds_wins() -> None:
    near, limits = undirected(GRAPH), constraints(GRAPH, 2, 0.03)
    first, second = np.array([0, 1, 0, 1, 0, 1, 0, 1], np.int32), np.array([0, 1, 1, 0, 0, 1, 1, 0], np.int32)
    for dear in (first, second):
        cost = {tuple(first): 1.0, tuple(second): 1.0} | {tuple(dear): 2.0}
        found = best(near, limits, iter([first, second]), lambda parts, cost=cost: cost[tuple(parts)])
        assert found.tolist() == (second if dear is first else first).tolist()


def test_a_partition_within_bounds_wins_over_a_cheaper_one_beyond_repair() -> None:
    # Parts 0 and 1 are given a bound of nothing by weights that no move can meet.
    near, limits = undirected(GRAPH), constraints(GRAPH, 2, 0.03)
    tight = type(limits)(limits.names, limits.weights, limits.bounds - [1, 0, 0], 2)
    even, lopsided = (
        np.array([0, 1, 0, 1, 0, 1, 0, 1], np.int32),
        np.array([0, 1, 0, 1, 0, 1, 1, 1], np.int32),
    )
    assert best(
        near, tight, iter([lopsided, even]), lambda parts: float(parts.tolist() == even.tolist())
    ).tolist()
    assert limits.excess(even) == 0 < tight.excess(lopsided)
