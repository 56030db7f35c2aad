"""Libra: the rules for placing an edge, in the native loop and in the definition."""

import numpy as np
import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.graph import Graph
from weft.kernels import native
from weft.partitioners import libra

needs_core = pytest.mark.skipif(not native.available(), reason="the native core is not built")


def place(edges: list[tuple[int, int]], num_parts: int, *, degree: list[int] | None = None) -> list[int]:
    """Return the parts of edges streamed in the given order, without a bound, by the definition."""
    src, dst = np.array(edges).T
    held = np.bincount(np.concatenate([src, dst]), minlength=max(src.max(), dst.max()) + 1)
    wanted = np.array(degree) if degree is not None else held
    return libra.reference(src, dst, wanted, np.arange(len(src)), num_parts, 10**6, 7).tolist()


def test_edges_with_new_ends_go_to_the_least_loaded_part() -> None:
    assert sorted(place([(0, 1), (2, 3), (4, 5)], 3)) == [0, 1, 2]


def test_an_edge_with_one_known_end_goes_where_that_end_is() -> None:
    first, second, third = place([(0, 1), (2, 3), (3, 4)], 2)
    assert first != second
    assert third == second


def test_an_edge_whose_ends_share_a_part_goes_there() -> None:
    parts = place([(0, 1), (2, 3), (1, 2), (0, 2)], 2, degree=[9, 9, 1, 9])
    assert parts[2] == parts[1]  # ends apart: node 2 has the smaller degree, its part takes the edge
    # Node 1 now lies in both parts; 0 and 2 share none, 2 has the smaller degree.
    assert parts[3] == parts[1]
    assert place([(0, 1), (2, 3), (1, 2), (1, 3)], 2, degree=[9, 9, 1, 9])[3] == parts[1]


def test_the_end_with_the_larger_degree_is_split() -> None:
    hub, leaf = 0, 2
    for edge in ((hub, leaf), (leaf, hub)):
        parts = place([(0, 1), (2, 3), edge], 2, degree=[50, 1, 2, 1])
        assert parts[2] == parts[1]


@needs_core
@settings(max_examples=60, deadline=None)
@given(graphs(max_nodes=12), st.sampled_from([1, 2, 5, 70]), st.sampled_from([None, 0.0, 0.2]), st.booleans())
def test_the_native_loop_gives_what_the_definition_gives(
    graph: Graph, num_parts: int, slack: float | None, shuffled: bool
) -> None:
    order = "random" if shuffled else "canonical"
    partitioner = libra.LibraPartitioner(slack=slack, order=order, seed=5)  # type: ignore[arg-type]
    fast = partitioner.assign(graph, num_parts)
    with native.disabled():
        assert torch.equal(fast, partitioner.assign(graph, num_parts))


def test_graphs_of_fewer_than_a_hundred_edges_are_placed() -> None:
    for count in (0, 1, 3, 99):
        edges = torch.stack([torch.arange(count), torch.arange(count) + 1])
        parts = libra.LibraPartitioner().assign(Graph.from_edges(edges, num_nodes=count + 1), 4)
        assert parts.shape == (count,)


def test_a_path_is_spread_by_the_bound_and_left_whole_without() -> None:
    path = Graph.from_edges(torch.stack([torch.arange(100), torch.arange(100) + 1]))
    assert len(set(libra.LibraPartitioner(slack=None).assign(path, 4).tolist())) == 1
    counts = torch.bincount(libra.LibraPartitioner(slack=0.0).assign(path, 4))
    assert counts.tolist() == [25, 25, 25, 25]
