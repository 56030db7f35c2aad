"""Moves that bring a partition within its bounds."""

from typing import Any

import numpy as np
import pytest
import torch

from weft.graph import Graph
from weft.partitioners import repair as repairing
from weft.partitioners.base import undirected
from weft.partitioners.constraints import Constraints, constraints
from weft.partitioners.repair import repair


def test_what_costs_least_moves_first() -> None:
    # Two groups of four, all linked; nodes 4 and 5 lie with the wrong one, and one must go.
    ends = [[0, 0, 0, 1, 1, 2, 4, 4, 4, 5, 5, 6], [1, 2, 3, 2, 3, 3, 5, 6, 7, 6, 7, 7]]
    graph = Graph.from_edges(ends, num_nodes=8)
    limits = constraints(graph, 2, 0.03, "nodes")
    wrong = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int32)
    assert repair(undirected(graph), limits, wrong).tolist() == [0, 0, 0, 0, 1, 0, 1, 1]
    assert wrong.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


def test_two_nodes_change_places_where_no_one_can_go() -> None:
    # Nodes 0 and 1 have three edges each; every part has as many nodes as it may.
    graph = Graph.from_edges([[2, 3, 4, 2, 3, 5, 4], [0, 0, 0, 1, 1, 1, 5]], num_nodes=6)
    limits = constraints(graph, 2, 0.03)
    tight = type(limits)(limits.names, limits.weights, np.array([3, 4]), 2)
    repaired = repair(undirected(graph), tight, np.array([0, 0, 0, 1, 1, 1], np.int32))
    assert tight.broken(repaired) == []
    # Both parts are full of nodes, and one has an edge too many.
    pairs = Graph.from_edges([[0, 1], [2, 3]], num_nodes=4)
    weights = np.array([[1, 1, 1, 1], [3, 2, 2, 1]])
    full = Constraints(["nodes", "edges"], weights, np.array([2, 4]), 2)
    assert full.broken(repair(undirected(pairs), full, np.array([0, 0, 1, 1], np.int32))) == []


def test_every_bound_is_kept_at_once_whatever_the_start() -> None:
    generator = torch.Generator().manual_seed(3)
    count = 600
    drawn = torch.rand(count, generator=generator)
    graph = Graph.from_edges(
        torch.randint(count, (2, 4_000), generator=generator),
        num_nodes=count,
        y=[0] * count,
        train_mask=drawn < 0.2,
        val_mask=drawn > 0.9,
    )
    near, limits = undirected(graph), constraints(graph, 5, 0.03)
    starts = [np.zeros(count), np.arange(count) // 150, np.sort(graph.indptr.diff().numpy()) % 5]
    for start in starts:
        start = start.astype(np.int32)
        assert limits.broken(start)
        repaired = repair(near, limits, start)
        assert limits.broken(repaired) == []
        assert np.array_equal(repaired, repair(near, limits, start))


def test_it_ends_where_no_move_helps() -> None:
    # Both hubs carry all edges and stay apart or together: three parts cannot share two.
    hubs = Graph.from_edges([[2, 3, 4, 5, 2, 3, 4, 5], [0, 0, 0, 0, 1, 1, 1, 1]], num_nodes=6)
    limits = constraints(hubs, 3, 0.03)
    tight = type(limits)(limits.names, limits.weights, limits.bounds * 0 + 2, 3)
    repaired = repair(undirected(hubs), tight, np.array([0, 0, 1, 1, 2, 2], np.int32))
    assert tight.excess(repaired) <= tight.excess(np.array([0, 0, 1, 1, 2, 2], np.int32))


def test_it_stops_after_so_many_looks_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    count, num_parts = 300, 10
    generator = np.random.default_rng(0)
    weights = generator.integers(1, 1000, (6, count))
    graph = Graph.from_edges(generator.integers(0, count, (2, 1_500)), num_nodes=count)
    # No part may hold more than the mean of anything, which nearly no partition keeps.
    tight = Constraints(list("abcdef"), weights, weights.sum(1) // num_parts, num_parts)
    start = (np.arange(count) % num_parts).astype(np.int32)
    gain, looked = repairing._State._gain, []

    def counted(state: Any, rows: Any, part: int) -> Any:
        looked.append(len(rows))
        return gain(state, rows, part)

    monkeypatch.setattr(repairing._State, "_gain", counted)
    monkeypatch.setattr(repairing, "_LOOKS", 40)
    monkeypatch.setattr(repairing, "_LOOKS_A_NODE", 0)
    repaired = repair(undirected(graph), tight, start)
    assert len(looked) <= 80  # a look at all moves of a part, then at most as many as are left
    assert tight.excess(repaired) < tight.excess(start)
    monkeypatch.undo()
    assert tight.excess(repair(undirected(graph), tight, start)) < tight.excess(repaired)
