"""SGC against PyG's SGConv."""

import pytest
import torch
from torch_geometric.nn import SGConv

import weft


@pytest.mark.parametrize("widths", [(5, 3), (3, 5)])
def test_equals_pyg(make_graph, assert_same, widths):
    conv = SGConv(*widths, K=3, add_self_loops=False)
    assert_same(weft.nn.SGC(*widths, hops=3), conv, make_graph(widths[0]))


@pytest.mark.parametrize("sparse", [False, True])
def test_constant_input_gives_the_same_as_any_input(sparse):
    torch.manual_seed(0)
    x = torch.rand(30, 40) * (torch.rand(30, 40) < 0.05)
    graph = weft.Graph.from_edges(
        torch.randint(0, 30, (2, 60)), num_nodes=30, x=x.to_sparse_csr() if sparse else x
    )
    layer, block = weft.nn.SGC(40, 4, hops=2), graph.block()
    expected = layer(block, x.clone())
    for _ in range(2):
        torch.testing.assert_close(layer(block, graph.x), expected)
    if not sparse:
        assert len(block._memory._answers) == 2  # both hops are remembered


def test_wrong_number_of_blocks_is_refused():
    graph = weft.Graph.from_edges(torch.tensor([[0], [1]]), num_nodes=2, x=torch.ones(2, 2))
    with pytest.raises(weft.InputError, match="SGC: expected 1 or 3 blocks, one a hop, got 2"):
        weft.nn.SGC(2, 2, hops=3)([graph.block()] * 2, graph.x)
