"""What one operation over parts holds in memory."""

import weakref
from typing import Any

import pytest
import torch
from halo_jobs import graph_of, local_graph
from torch import Tensor

from weft.comm.group import Group
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
