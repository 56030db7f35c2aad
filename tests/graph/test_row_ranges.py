"""All edges, some at a time: the same edges whatever the size, and counts beyond 32 bits."""

import pytest
import torch
from generated_graphs import graphs
from hypothesis import given
from hypothesis import strategies as st

from weft.graph import Graph, row_ranges
from weft.graph.degrees import edge_destinations


@given(graphs(max_nodes=12), st.integers(1, 9))
def test_the_pieces_are_all_the_edges_in_order(graph: Graph, some: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "EDGES_AT_ONCE", some)
        pieces = list(row_ranges.some_edges(graph.indptr, graph.indices))
        degree = row_ranges.out_degrees(graph.indptr, graph.indices)
    none = [torch.zeros(0, dtype=torch.int64)]
    src = torch.cat(none + [piece[0].long() for piece in pieces])
    dst = torch.cat(none + [piece[1] for piece in pieces])
    assert torch.equal(src, graph.indices.long())
    assert torch.equal(dst, edge_destinations(graph.indptr))
    assert torch.equal(degree, torch.bincount(src, minlength=graph.num_nodes))
    assert all(len(part) <= max(some, int(graph.indptr.diff().max())) for part, _ in pieces)


def test_three_billion_edges_are_walked_without_being_held() -> None:
    rows, each = 3, 1_000_000_000
    indptr = torch.arange(rows + 1) * each
    assert list(row_ranges.row_ranges(indptr)) == [(0, 1), (1, 2), (2, 3)]
    indices = torch.tensor([7], dtype=torch.int32).expand(rows * each)  # one value in memory
    begin = int(indptr[2]) + each - 3
    assert begin > 2**31 - 4
    assert row_ranges.sources(indices, begin, begin + 3).tolist() == [7, 7, 7]
