"""Linear deterministic greedy: the native loop is the definition, and more passes cut less."""

import numpy as np
import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.graph import Graph
from weft.kernels import native
from weft.partitioners import ldg
from weft.partitioners.base import undirected
from weft.partitioners.quality import count_cut

needs_core = pytest.mark.skipif(not native.available(), reason="the native core is not built")


def ring_of_cliques(cliques: int = 6, size: int = 8) -> Graph:
    pairs = [
        (c * size + a, c * size + b)
        for c in range(cliques)
        for a in range(size)
        for b in range(size)
        if a != b
    ]
    pairs += [(c * size, (c + 1) % cliques * size) for c in range(cliques)]
    order = torch.from_numpy(np.random.default_rng(0).permutation(cliques * size))
    return Graph.from_edges(order[torch.tensor(pairs).t()])


@needs_core
@settings(max_examples=60, deadline=None)
@given(graphs(max_nodes=12), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["id", "random"]))
def test_the_native_loop_gives_what_the_definition_gives(
    graph: Graph, num_parts: int, passes: int, order: str
) -> None:
    partitioner = ldg.LdgPartitioner(passes=passes, order=order)  # type: ignore[arg-type]
    fast = partitioner.assign(graph, num_parts)
    with native.disabled():
        assert torch.equal(fast, partitioner.assign(graph, num_parts))


def test_a_node_follows_its_neighbours_until_their_part_is_full() -> None:
    near = undirected(Graph.from_edges([[0, 0, 0, 0], [1, 2, 3, 4]]))
    parts = ldg.reference(near, np.ones(5), np.arange(5), 2, 3.0, 1)
    assert parts.tolist() == [0, 0, 0, 1, 1]  # 0 is full with three: its score is not above 0


def test_cliques_stay_whole_after_a_few_passes() -> None:
    graph = ring_of_cliques()
    cuts = [
        count_cut(graph, ldg.LdgPartitioner(passes=passes, slack=0.1).assign(graph, 3), 3)
        for passes in (1, 10)
    ]
    assert cuts[1] < cuts[0] / 2
