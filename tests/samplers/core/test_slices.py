"""Rows of node data for a batch, by type, of any kind."""

import pytest
import torch

from weft.graph import Graph, SparseFeatures
from weft.kernels import native
from weft.samplers.core.slices import node_rows, take_rows

ROWS = torch.tensor([3, 0, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 2), (5, 0)])
def test_rows_are_those_of_plain_indexing(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    for whole in (x, x.transpose(0, -1).contiguous().transpose(0, -1)):
        assert torch.equal(take_rows(whole, ROWS), x[ROWS])
    with native.disabled():
        assert torch.equal(take_rows(x, ROWS), x[ROWS])


def test_sparse_rows_stay_sparse() -> None:
    x = torch.eye(5)
    found = take_rows(SparseFeatures.from_dense(x), ROWS)
    assert isinstance(found, SparseFeatures)
    assert torch.equal(found.to_dense(), x[ROWS])


def test_nodes_of_several_types_have_their_rows_by_type() -> None:
    a, b = torch.rand(3, 2), torch.rand(2, 4)
    graph = Graph.from_types(
        {"a": {"x": a}, "b": {"x": b}, "c": {"num_nodes": 2}}, {("a", "to", "b"): torch.tensor([[0], [1]])}
    )
    offset = graph.node_offsets[graph.node_types.index("b")]
    first = graph.node_offsets[graph.node_types.index("a")]
    found = node_rows(graph, torch.tensor(sorted([first + 2, offset + 1, first, graph.num_nodes - 1])))
    assert set(found) == {"a", "b"}
    assert torch.equal(found["a"], a[[0, 2]])
    assert torch.equal(found["b"], b[[1]])
    assert node_rows(Graph.from_edges([[0], [1]]), ROWS[:1]) is None
