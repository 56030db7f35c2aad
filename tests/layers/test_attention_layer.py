"""What GAT and GATv2 share."""

import pytest
import torch

import weft


@pytest.mark.parametrize("kind", ["GAT", "GATv2"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("concat", [True, False])
def test_the_output_may_be_overwritten_before_backward(make_graph, kind, bias, concat):
    graph = make_graph(5)
    layer = getattr(weft.nn, kind)(5, 4, heads=2, bias=bias, concat=concat).double()
    assert layer.output_is_free
    gradients = []
    for relu in (torch.relu, torch.relu_):
        layer.zero_grad()
        relu(layer(graph.block(), graph.x)).square().sum().backward()
        gradients.append({name: value.grad for name, value in layer.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=0.0, atol=0.0)


def test_the_bias_is_added_without_a_second_matrix():
    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        copies = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.copies += func is torch.ops.aten.add.Tensor
            return func(*args, **(kwargs or {}))

    graph = weft.Graph.from_edges([[0, 1, 2], [1, 2, 0]], x=torch.eye(3))
    layer = weft.nn.GAT(3, 4)
    with Count() as count:
        layer(graph.block(), graph.x)
    assert count.copies == 0
