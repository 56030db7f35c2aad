"""Gradients in float16: small ones are kept, a step that is not finite is left out, everywhere alike."""

import math

import pytest
import torch
from torch import nn

from weft.strategies import loss_scale
from weft.strategies.loss_scale import FIRST, LossScale

CPU = torch.device("cpu")


def alone(value: float) -> list[float]:
    return [value]


def test_the_gradient_is_scaled_on_its_way_back_and_the_step_takes_it_as_it_was() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scale = LossScale(CPU, alone)
    scale.attach(optimizer)
    outputs = scale.up(3.0 * weight)
    assert torch.equal(outputs, 3.0 * weight)
    outputs.sum().backward()
    assert torch.equal(weight.grad, torch.full((2,), 3.0 * FIRST))
    optimizer.step()
    assert torch.equal(weight.detach(), torch.tensor([-0.5, 0.5]))


def test_gradients_that_float16_would_lose_arrive() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    scale = LossScale(CPU, alone)
    tiny = 1e-9  # below the least number of float16
    (scale.up(weight.half().float()) * tiny).sum().backward()
    assert float(weight.grad / scale.factor) == pytest.approx(tiny, rel=1e-3)
    weight.grad = None
    (weight.half().float() * tiny).sum().backward()
    assert float(weight.grad) == 0.0


def test_a_step_that_is_not_finite_is_left_out_and_halves_the_scale() -> None:
    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weight, other], lr=0.1)
    scale = LossScale(CPU, alone)
    scale.attach(optimizer)
    weight.grad, other.grad = torch.tensor([1.0, math.inf]), torch.ones(1)
    optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(2))
    assert torch.equal(other.detach(), torch.ones(1))
    assert float(scale.factor) == FIRST / 2


def test_one_worker_without_a_finite_gradient_stops_the_step_of_all() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    asked = []

    def agree(value: float) -> list[float]:
        asked.append(value)
        return [1.0]  # another worker's

    scale = LossScale(CPU, agree)
    scale.attach(optimizer)
    weight.grad = torch.ones(1)
    optimizer.step()
    assert asked == [0.0]
    assert weight.item() == 1.0


def test_the_scale_grows_after_many_good_steps_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_scale, "EVERY", 3)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scale, other = LossScale(CPU, alone), LossScale(CPU, alone)
    scale.attach(optimizer)
    for expected in (1.0, 1.0, 2.0, 2.0):
        weight.grad = torch.ones(1)
        optimizer.step()
        assert float(scale.factor) == FIRST * expected
    other.restore(scale.state())
    assert (float(other.factor), other.good) == (2.0 * FIRST, 1)
