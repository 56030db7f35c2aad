"""Gradients are summed over ranks in one order, whatever each rank's model used."""

import pytest
import torch
from model_jobs import gradients
from ranks import run_ranks
from torch import nn

from weft.comm.group import Group
from weft.strategies.reducer import GradientReducer, PlainReducer


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_summed_where_any_rank_has_one_and_none_elsewhere(size: int) -> None:
    found = run_ranks(size, gradients)
    expected = [1.0, 2.0 * (1 + size), 3.0 * size, None]
    for sums, departed, again in found:
        assert sums == expected
        assert again == [2 * value for value in expected if value is not None]
        # The fourth parameter is the first bucket; as nobody has its gradient, none may leave before it.
        assert departed == 0


def test_frozen_parameters_are_neither_sent_nor_trained() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[0].requires_grad_(False)
    free = [*model[1].parameters()]
    assert PlainReducer().parameters(model) == free
    reduce = GradientReducer([*model.parameters()], Group.alone())
    assert [each for bucket in reduce.buckets for each in bucket.parameters] == free[::-1]
    for _ in range(2):
        reduce.begin()
        model[1](model[0](torch.ones(1, 2))).sum().backward()
        assert reduce._next == len(reduce.buckets), "nothing waits for a gradient that never comes"
        reduce.finish()
    assert all(each.grad is None for each in model[0].parameters())
    assert all(each.grad is not None for each in free)
    reduce.close()
