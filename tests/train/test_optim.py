"""Schedules give the rate that their formula says; optimisers are torch's."""

import math

import pytest
import torch
from torch import nn

from weft.train.optim import Best, Schedule, make_optimizer


def test_cosine_goes_from_the_full_rate_to_nearly_zero() -> None:
    schedule = Schedule("cosine", lr=0.4, epochs=10)
    assert schedule.rate(0) == 0.4
    assert schedule.rate(5) == pytest.approx(0.2)
    assert schedule.rate(9) == pytest.approx(0.4 * 0.5 * (1 + math.cos(math.pi * 0.9)))


def test_cosine_is_the_one_of_torch() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    ours = Schedule("cosine", lr=0.4, epochs=10)
    for epoch in range(10):
        assert ours.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()


def test_step_lowers_the_rate_every_so_many_epochs() -> None:
    schedule = Schedule("step", lr=1.0, epochs=100, every=10, factor=0.1)
    assert [schedule.rate(epoch) for epoch in (0, 9, 10, 25)] == pytest.approx([1.0, 1.0, 0.1, 0.01])


def test_plateau_lowers_the_rate_after_waiting_and_starts_to_wait_again() -> None:
    schedule = Schedule("plateau", lr=1.0, epochs=100, every=2, factor=0.5)
    rates = []
    for improved in (True, False, False, False, True, False, False):
        schedule.observe(improved=improved)
        rates.append(schedule.rate(0))
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25]


def test_plateau_continues_from_its_state() -> None:
    schedule = Schedule("plateau", lr=1.0, epochs=100, every=2)
    schedule.observe(improved=False)
    again = Schedule("plateau", lr=1.0, epochs=100, every=2)
    again.restore(schedule.state())
    again.observe(improved=False)
    assert again.rate(0) == 0.5


def test_rate_is_set_on_every_group() -> None:
    optimizer = torch.optim.SGD(
        [{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(1))]}], lr=1
    )
    Schedule(None, lr=0.25, epochs=3).apply(optimizer, 2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize(("name", "kind"), [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD")])
def test_optimiser_by_name_skips_frozen_parameters(name: str, kind: str) -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = make_optimizer(name, list(model.parameters()), lr=0.1, weight_decay=0.01, momentum=0.5)  # type: ignore[arg-type]
    assert type(optimizer).__name__ == kind
    assert optimizer.param_groups[0]["params"] == [model.weight]
    assert optimizer.param_groups[0]["weight_decay"] == 0.01


def test_best_prefers_the_lower_loss_among_equal_metrics_and_ignores_nan() -> None:
    best = Best()
    assert best.observe(1, 0.5, 1.0)
    assert not best.observe(2, 0.5, 1.5)
    assert best.observe(3, 0.5, 0.5)
    assert not best.observe(4, float("nan"), 0.1)
    assert (best.epoch, best.waited, best.seen) == (3, 1, 4)
