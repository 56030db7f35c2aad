"""Messages made again: with the draws of before, and with all parameters that they use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.message import propagate
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


SLOPE = 2.0


class Drawn(nn.Module):
    """A message that is not compiled: it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.factor = nn.Dropout(0.5), 3.0
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("other", torch.ones(4))

    def forward(self, u: Tensor) -> Tensor:
        return self.dropout(u).sin() * self.factor * SLOPE * self.mask


def set_slope(drawn: Drawn) -> None:
    global SLOPE
    SLOPE = 5.0


CHANGES: dict[str, Callable[[Drawn], Any]] = {
    "evaluation": lambda drawn: drawn.eval(),
    "number": lambda drawn: setattr(drawn, "factor", 7.0),
    "module": lambda drawn: setattr(drawn, "dropout", nn.Identity()),
    "buffer": lambda drawn: setattr(drawn, "mask", torch.zeros(4)),
    "global": set_slope,
    "what it does not read": lambda drawn: drawn.other.zero_(),
}


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Tensor], Tensor], Tensor]:
    """Return what sums messages a few edges at a time."""
    monkeypatch.setattr(propagate, "CHUNK_ELEMENTS", 40)
    draw = torch.Generator().manual_seed(0)
    block = Graph.from_edges(torch.randint(0, 12, (2, 90), generator=draw), num_nodes=12).block()

    asked, in_chunks = [], propagate.in_chunks
    monkeypatch.setattr(propagate, "in_chunks", lambda *given: asked.append(given) or in_chunks(*given))

    def summed(message: Callable[..., Tensor], h: Tensor) -> Tensor:
        torch.manual_seed(5)
        asked.clear()
        out = block.propagate(message, src=(h,))
        assert asked
        return out

    return summed


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("compiles", [True, False])
def test_what_changes_before_backward_changes_no_gradient(
    name: str, compiles: bool, in_parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SLOPE", 2.0)
    h = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    before = weft.compile_messages(compiles)
    try:
        (want,) = torch.autograd.grad(in_parts(Drawn(), h).sum(), h)
        drawn = Drawn()
        out = in_parts(drawn, h)
        CHANGES[name](drawn)
        now = vars(drawn).copy(), SLOPE
        (found,) = torch.autograd.grad(out.sum(), h)
    finally:
        weft.compile_messages(before)
    assert torch.equal(found, want)
    assert (vars(drawn), SLOPE) == now


def test_what_was_written_to_before_backward_is_refused(in_parts: Any) -> None:
    h, drawn = torch.randn(12, 4).requires_grad_(), Drawn()
    out = in_parts(drawn, h)
    drawn.mask.zero_()
    with pytest.raises(GraphError, match="written to in place before backward"):
        out.sum().backward()
