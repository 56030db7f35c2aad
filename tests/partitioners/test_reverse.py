"""Edges by source, sorted on disk."""

import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.graph import Graph, row_ranges
from weft.graph.degrees import edge_destinations
from weft.partitioners.reverse import Reverse


@settings(deadline=None)
@given(graphs(max_nodes=12), st.integers(1, 40))
def test_it_is_the_edges_by_source_whatever_is_held_at_once(graph: Graph, some: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "EDGES_AT_ONCE", some)
        made = Reverse(graph)
    dst = edge_destinations(graph.indptr)
    expected = dst[torch.argsort(graph.indices, stable=True)].tolist()
    assert made.between(0, graph.num_edges).tolist() == made.mapped().tolist() == expected
    assert (
        made.indptr[1:].tolist()
        == torch.bincount(graph.indices, minlength=graph.num_nodes).cumsum(0).tolist()
    )
    half = graph.num_edges // 2
    assert made.between(half, graph.num_edges).tolist() == expected[half:]
    made.close()
