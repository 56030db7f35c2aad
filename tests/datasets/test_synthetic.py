"""Regular graphs by their edges, R-MAT by its statistics."""

import numpy as np
import pytest
import torch

from weft.datasets import synthetic
from weft.datasets.synthetic import grid, ring, rmat, star
from weft.errors import GraphError
from weft.graph.graph import Graph


def edges(graph: Graph) -> set[tuple[int, ...]]:
    return {tuple(edge) for edge in graph.edge_index.T.tolist()}


def both_ways(*pairs: tuple[int, int]) -> set[tuple[int, ...]]:
    return {*pairs, *((target, source) for source, target in pairs)}


def test_star_joins_its_hub_with_all_leaves() -> None:
    assert edges(star(nodes=4)) == both_ways((0, 1), (0, 2), (0, 3))
    assert star(nodes=1).num_edges == 0


def test_ring_joins_each_node_with_the_next() -> None:
    assert edges(ring(nodes=4)) == both_ways((0, 1), (1, 2), (2, 3), (3, 0))
    assert edges(ring(nodes=2)) == both_ways((0, 1))
    assert ring(nodes=1).num_edges == 0


def test_grid_joins_rows_and_columns() -> None:
    graph = grid(rows=2, columns=3)
    assert graph.num_nodes == 6
    assert edges(graph) == both_ways((0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5))


def test_rmat_has_the_wanted_size_and_is_a_function_of_its_seed() -> None:
    one, same, other = (rmat(scale=10, edges=5000, seed=seed) for seed in (1, 1, 2))
    assert (one.num_nodes, one.num_edges) == (1024, 5000)
    assert torch.equal(one.edge_index, same.edge_index)
    assert not torch.equal(one.edge_index, other.edge_index)


def test_rmat_does_not_depend_on_the_chunks_it_is_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rmat(scale=6, edges=1000).edge_index
    monkeypatch.setattr(synthetic, "_CHUNK", 64)
    assert torch.equal(rmat(scale=6, edges=1000).edge_index, whole)


@pytest.mark.parametrize("scale", [1, 3, 6, 9])
def test_rmat_quadrants_have_their_shares_at_every_level(scale: int) -> None:
    count, shares = 40_000, np.array([0.5, 0.25, 0.15, 0.1])
    src, dst = rmat(scale=scale, edges=count, a=0.5, b=0.25, c=0.15).edge_index.numpy()
    for level in range(scale):
        quadrant = 2 * ((src >> level) & 1) + ((dst >> level) & 1)
        found = np.bincount(quadrant, minlength=4) / count
        np.testing.assert_allclose(found, shares, atol=5 * 0.5 / np.sqrt(count))


def test_rmat_levels_are_drawn_independently() -> None:
    src, dst = rmat(scale=8, edges=40_000, a=0.25, b=0.25, c=0.25).edge_index.numpy()
    # Uniform shares: each of the 65,536 cells is hit with probability 1 - e^(-40,000 / 65,536) = 0.457.
    assert len(np.unique(src * 256 + dst)) / 65_536 == pytest.approx(0.457, abs=0.01)


def test_rmat_shares_above_one_are_refused() -> None:
    with pytest.raises(GraphError, match=r"a \+ b \+ c must be at most 1"):
        rmat(scale=4, edges=10, a=0.6, b=0.3, c=0.2)


def test_rmat_without_edges_is_a_graph() -> None:
    assert rmat(scale=3, edges=0).num_edges == 0
