"""PageRank against networkx and against numbers that can be worked out by hand."""

import networkx
import pytest
import torch

from weft.algorithms import pagerank
from weft.errors import InputError, WeftWarning
from weft.graph.graph import Graph

# A small web: node 4 is dangling, node 5 isolated, the edge 0 → 1 stands twice, node 3 links to itself.
EDGES = [[0, 0, 0, 1, 2, 3, 3, 2], [1, 1, 2, 2, 0, 3, 0, 4]]


def rank_by_networkx(weight: list[float] | None = None, **options: object) -> torch.Tensor:
    web = networkx.MultiDiGraph()
    web.add_nodes_from(range(6))
    weights = weight or [1.0] * len(EDGES[0])
    web.add_weighted_edges_from(zip(*EDGES, weights))
    ranks = networkx.pagerank(web, tol=1e-12, max_iter=1000, **options)
    return torch.tensor([ranks[node] for node in range(6)], dtype=torch.float64)


@pytest.mark.parametrize("damping", [0.5, 0.85, 0.95])
def test_ranks_are_those_of_networkx(damping: float) -> None:
    graph = Graph.from_edges(EDGES, num_nodes=6)
    ranks = pagerank(graph, damping=damping, tolerance=1e-13, max_iterations=1000)
    torch.testing.assert_close(ranks, rank_by_networkx(alpha=damping), rtol=0, atol=1e-10)
    assert float(ranks.sum()) == pytest.approx(1.0)


def test_personalised_ranks_are_those_of_networkx() -> None:
    wanted = [0.0, 2.0, 0.0, 1.0, 0.0, 1.0]
    graph = Graph.from_edges(EDGES, num_nodes=6)
    ranks = pagerank(graph, personalise=wanted, tolerance=1e-13, max_iterations=1000)
    expected = rank_by_networkx(personalization=dict(enumerate(wanted)))
    torch.testing.assert_close(ranks, expected, rtol=0, atol=1e-10)


def test_weighted_ranks_are_those_of_networkx() -> None:
    weight = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 4.0, 0.25]
    graph = Graph.from_edges(EDGES, num_nodes=6, edge_weight=weight)
    ranks = pagerank(graph, weighted=True, tolerance=1e-13, max_iterations=1000)
    torch.testing.assert_close(ranks, rank_by_networkx(weight), rtol=0, atol=1e-10)


def test_graph_without_edges_ranks_all_nodes_alike() -> None:
    graph = Graph.from_edges(torch.zeros(2, 0, dtype=torch.long), num_nodes=4)
    assert pagerank(graph).tolist() == pytest.approx([0.25] * 4)


def test_ranks_that_still_move_come_with_a_warning() -> None:
    graph = Graph.from_edges(EDGES, num_nodes=6)
    with pytest.warns(WeftWarning, match="raise max_iterations"):
        pagerank(graph, max_iterations=2)


@pytest.mark.parametrize("wrong", [[1.0], [0.0] * 6, [-1.0, 2, 0, 0, 0, 0]])
def test_impossible_personalisation_is_refused(wrong: list[float]) -> None:
    with pytest.raises(InputError, match=r"personalise must be \[num_nodes\] = \[6\]"):
        pagerank(Graph.from_edges(EDGES, num_nodes=6), personalise=wrong)


def test_damping_of_one_is_refused() -> None:
    with pytest.raises(InputError, match="damping must lie in"):
        pagerank(Graph.from_edges(EDGES, num_nodes=6), damping=1.0)
