"""Edges to walk along and to draw by weight: what workers hold together is what one process has."""

import numpy as np
import torch

from weft.graph import Graph
from weft.samplers.core.in_edges import InEdges

GRAPH = Graph.from_edges([[0, 1, 2, 0, 3], [1, 2, 1, 2, 2]], num_nodes=5)
WHOLE = InEdges(GRAPH.indptr, GRAPH.indices)


def test_a_walk_goes_against_edges_and_stays_where_none_come_in() -> None:
    nodes = np.array([1, 1, 2, 2, 2, 4])
    found = WHOLE.follow(nodes, np.array([0.0, 0.99, 0.0, 0.34, 0.999999, 0.5]))
    assert found.tolist() == [0, 2, 0, 1, 3, 4]


def test_weights_are_shares_in_means_to_one_scale() -> None:
    weight = WHOLE.node_weights().double()
    expected = torch.tensor([1 / 4 + 1 / 9, 1 / 9, 1 / 4, 1 / 9, 0.0], dtype=torch.float64)
    torch.testing.assert_close(weight / weight.sum(), expected / expected.sum())
    edges, rows = WHOLE.edge_weights()
    share = torch.tensor([1, 2, 3, 1, 1]).double().reciprocal()
    wanted = share[[1, 1, 2, 2, 2]] + share[[0, 2, 0, 1, 3]]
    torch.testing.assert_close(edges.double() / edges.sum(), wanted / wanted.sum())
    assert rows.tolist() == [0, int(edges[:2].sum()), int(edges[2:].sum()), 0, 0]


def test_an_edge_is_picked_where_the_running_weight_of_its_row_passes() -> None:
    running = torch.tensor([2, 5, 6, 10, 11])
    rows, rest = np.array([1, 1, 1, 2, 2, 2]), np.array([0, 1, 2, 0, 1, 5])
    assert WHOLE.pick(running, rows, rest).tolist() == [0, 0, 2, 0, 1, 3]


def test_two_workers_know_together_what_one_process_does() -> None:
    held = []
    for rows in ([1, 3], [0, 2, 4]):
        own = torch.isin(torch.repeat_interleave(GRAPH.indptr.diff()), torch.tensor(rows))
        counts = torch.zeros(5, dtype=torch.int64)
        counts[rows] = GRAPH.indptr.diff()[rows]
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        held.append((indptr, GRAPH.indices[own]))
    degree = GRAPH.indptr.diff()
    nodes, places = np.array([1, 2, 4]), np.array([0.6, 0.1, 0.3])
    found = []
    for indptr, indices in held:
        told: list[torch.Tensor] = []
        alone = InEdges(indptr, indices, lambda _: degree)
        alone.together = lambda value, told=told: told.append(value) or value  # type: ignore[assignment, misc]
        alone.follow(nodes, places)
        found.append(told[0])
    together = found[0] + found[1]
    expected = WHOLE.follow(nodes, places)
    assert np.where(together > 0, together - 1, nodes).tolist() == expected.tolist()
