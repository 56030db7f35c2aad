"""Messages made again: with the draws of before, and with all parameters that they use."""

import pytest
import torch
from torch import nn

from weft.errors import GraphError
from weft.graph.message.replay import ForwardState, captured


def test_draws_are_those_of_before_and_later_ones_go_on_undisturbed() -> None:
    torch.manual_seed(3)
    state = ForwardState([torch.ones(1)])
    first = torch.rand(4)
    expected = torch.rand(4)
    torch.manual_seed(3)
    torch.rand(4)
    with state():
        assert torch.equal(torch.rand(4), first)
    assert torch.equal(torch.rand(4), expected)


def test_parameters_of_a_module_are_found_once_and_those_that_are_given_left_out() -> None:
    module, given = nn.Linear(3, 2), nn.Parameter(torch.ones(2))
    found = captured(lambda u, w: module(u) * w + module(u), [torch.ones(2, 3)], [given])
    assert {id(each) for each in found} == {id(each) for each in module.parameters()}


def test_a_tensor_with_a_history_is_refused() -> None:
    hidden = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(GraphError, match="pass it in src, dst, edge or params"):
        captured(lambda u: u * hidden, [torch.ones(2, 3)], [])
