"""What one operation over parts holds in memory."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from halo_jobs import graph_of, local_graph
from torch import Tensor, nn

from weft.comm.group import Group
from weft.errors import GraphError
from weft.layers import rgcn
from weft.strategies.sequential.parts import EdgeParts
from weft.strategies.sequential.reductions import WeightedSum
from weft.strategies.sequential.sequential import Sequential
from weft.train.model import build_model, ready


def stepped(parts: int) -> list[Tensor]:
    """Take a step of R-GCN on a typed graph in parts; return the gradients."""
    graph = graph_of("typed")
    model = ready(build_model(graph, "rgcn", {"hidden": 4}), device=torch.device("cpu"), dtype=torch.float64)
    assignment = torch.arange(graph.num_nodes) % parts
    local = local_graph(Group.alone(), graph.to(dtype=torch.float64), assignment, parts)
    strategy = Sequential(local)
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.0))
    return [value.grad for value in model.parameters() if value.grad is not None]


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_that_are_made_again_are_let_go_before_their_gradients_are_made(
    monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []
    transform, gradients = rgcn._transformed, WeightedSum.gradients

    def remembered(*given: Any) -> Tensor:
        rows = transform(*given)
        made.append(weakref.ref(rows.untyped_storage()))
        made.append(weakref.ref(rows))
        return rows

    def counted(self: WeightedSum, *given: Any) -> list[Tensor]:
        alive.append(sum(each() is not None for each in made))
        return gradients(self, *given)

    expected = stepped(parts)
    monkeypatch.setattr(rgcn, "_transformed", remembered)
    monkeypatch.setattr(WeightedSum, "gradients", counted)
    for ours, theirs in zip(stepped(parts), expected, strict=True):
        assert torch.equal(ours, theirs)
    assert made
    assert alive
    assert not any(alive)


def test_rows_of_one_part_are_read_where_they_are() -> None:
    graph = graph_of("typed")
    local = local_graph(Group.alone(), graph, torch.zeros(graph.num_nodes, dtype=torch.int64), 1)
    block: Any = Sequential(local).layout.training_block()
    parts: EdgeParts = block._parts(None, own_parts=True)
    (own,) = parts.own
    assert own.columns == slice(0, graph.num_nodes)
    assert own.rows is None


class Drawn(nn.Module):
    """A message that is not compiled, as it draws; backward reads rows of both ends again."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.factor = nn.Dropout(0.5), 3.0
        self.register_buffer("mask", torch.ones(1))

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return self.dropout(u * v).sin() * self.factor * self.mask


CHANGES: dict[str, Callable[[Drawn], Any]] = {
    "nothing": lambda drawn: None,
    "evaluation": lambda drawn: drawn.eval(),
    "number": lambda drawn: setattr(drawn, "factor", 7.0),
    "module": lambda drawn: setattr(drawn, "dropout", nn.Identity()),
    "buffer": lambda drawn: setattr(drawn, "mask", torch.zeros(1)),
}


def summed_in_parts(drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return rows, and what messages in three parts make of them."""
    graph = graph_of("directed").to(dtype=torch.float64)
    local = local_graph(Group.alone(), graph, torch.arange(graph.num_nodes) % 3, 3)
    block = Sequential(local).layout.training_block()
    h = torch.linspace(-1, 1, graph.num_nodes * 2, dtype=torch.float64).reshape(-1, 2).requires_grad_()
    torch.manual_seed(5)
    return h, block.propagate(drawn, src=(h,), dst=(h,))


def test_what_changes_before_backward_changes_no_gradient_of_parts() -> None:
    found = []
    for change in CHANGES.values():
        drawn = Drawn()
        h, out = summed_in_parts(drawn)
        change(drawn)
        found += torch.autograd.grad(out.sum(), h)
    for name, each in zip(CHANGES, found):
        assert torch.equal(each, found[0]), name


def test_what_was_written_to_before_backward_of_parts_is_refused() -> None:
    drawn = Drawn()
    _, out = summed_in_parts(drawn)
    drawn.mask.zero_()
    with pytest.raises(GraphError, match="written to in place before backward"):
        out.sum().backward()
