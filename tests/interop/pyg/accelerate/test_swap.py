"""A model whose convolutions are accelerated keeps its state, its classes and its copies."""

import copy
import io

import pytest
import torch
from accelerate_cases import Example, N, mlp, some_edges
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GINConv,
    SAGEConv,
)

import weft
from weft.errors import WeftWarning


def test_model_keeps_its_state_its_classes_and_its_copies():
    plain = Example()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    fast = weft.accelerate(plain)
    assert fast is plain
    assert isinstance(fast.conv1, GATConv)
    assert weft.accelerated(fast) == ["conv1: GATConv", "conv2: GATConv"]
    assert fast.state_dict().keys() == before.keys()
    fast.load_state_dict(before)
    twin = copy.deepcopy(fast).eval()
    x, edges = torch.randn(N, 6), some_edges()
    assert torch.equal(twin(x, edges), fast.eval()(x, edges))
    assert weft.accelerated(twin) == weft.accelerated(fast)
    assert twin.conv1.lin.weight is not fast.conv1.lin.weight


def test_model_can_be_saved_whole():
    fast = weft.accelerate(Example()).eval()
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    again = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    x, edges = torch.randn(N, 6), some_edges()
    assert torch.equal(again(x, edges), fast(x, edges))
    assert weft.accelerated(again) == weft.accelerated(fast)


def test_accelerating_twice_changes_nothing():
    fast = weft.accelerate(weft.accelerate(Example()))
    assert weft.accelerated(fast) == ["conv1: GATConv", "conv2: GATConv"]
    assert len(fast._forward_pre_hooks) == 1


def test_a_subclass_with_its_own_message_gives_its_own_result():
    class Mine(SAGEConv):
        def message(self, x_j: Tensor) -> Tensor:
            return 2 * x_j

    model = nn.ModuleList([Mine(6, 4), SAGEConv(6, 4)])
    x, edges = torch.randn(N, 6), some_edges()
    expected = model[0](x, edges)
    assert weft.accelerated(weft.accelerate(model)) == ["0: Mine", "1: SAGEConv"]
    torch.testing.assert_close(model[0](x, edges), expected)


def test_a_convolution_that_disagrees_goes_back_to_its_own_forward(monkeypatch):
    from weft.interop.pyg.accelerate import swap

    fast = weft.accelerate(GINConv(mlp()))
    plain = copy.deepcopy(fast)
    x, edges = torch.randn(N, 6), some_edges()
    monkeypatch.setattr(swap, "difference", lambda got, expected: 0.5)
    with pytest.warns(WeftWarning, match=r"differs from PyG's own result by 5.0e-01"):
        out = fast(x, edges)
    monkeypatch.undo()
    assert weft.accelerated(fast) == []
    torch.testing.assert_close(out, plain(x, edges))
    assert torch.equal(out, fast(x, edges))


def test_message_hooks_are_called():
    fast = weft.accelerate(SAGEConv(6, 4), check=False)
    called = []
    fast.register_message_forward_pre_hook(lambda module, inputs: called.append(1))
    with pytest.warns(WeftWarning, match="hooks"):
        fast(torch.randn(N, 6), some_edges())
    assert called
