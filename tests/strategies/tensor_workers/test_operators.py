"""A product with its loss in one task has the bits of the two tasks and the loss between them."""

import pytest
import torch
import torch.nn.functional as F

from weft.strategies.tensor_workers.operators import (
    JOINED,
    OPERATORS,
    gradient_of,
    joined_with,
    of_weights,
)
from weft.tasks.loss import BCE, MAE, MSE, Loss, cross_entropy, huber

LOSSES = [
    (cross_entropy(), "classes"),
    (cross_entropy([0.5, 2.0, 1.0, 0.1, 3.0], 0.1), "classes"),
    (BCE, "labels"),
    (MSE, "numbers"),
    (MAE, "numbers"),
    (huber(0.3), "numbers"),
]


def known(kind: str, count: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(4)
    if kind == "classes":
        return torch.randint(0, 5, (count,), generator=drawn)
    y = torch.randn(count, 5, generator=drawn)
    return (y > 0).float() if kind == "labels" else y


@pytest.mark.parametrize(("loss", "kind"), LOSSES, ids=lambda each: getattr(each, "name", each))
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [9, 0])
def test_bits_are_those_of_two_tasks(loss: Loss, kind: str, bias: bool, count: int) -> None:
    drawn = torch.Generator().manual_seed(7)
    rows, places = torch.randn(40, 8, generator=drawn), torch.randperm(40, generator=drawn)[:count]
    weights = [torch.randn(5, 8, generator=drawn), *([torch.randn(5, generator=drawn)] if bias else [])]
    y = known(kind, count)
    (made,) = OPERATORS["apply_vertex"]([rows], weights)
    assert torch.equal(made, F.linear(rows, *weights))
    made.requires_grad_()
    value = loss.summed(made[places], y) / 17
    (towards,) = torch.autograd.grad(value, made)
    expected = OPERATORS[gradient_of("apply_vertex")]([rows, towards], weights)
    sent = [rows, places, y, torch.tensor([17.0, *(loss.numbers or ())], dtype=torch.float64)]
    name = joined_with(loss.name)
    assert {name, of_weights(name)} <= JOINED
    for given, wanted in ((name, expected), (of_weights(name), expected[1:])):
        found = OPERATORS[given](sent, weights)
        assert len(found) == 1 + len(wanted)
        assert all(torch.equal(a, b) for a, b in zip(found, [value, *wanted], strict=True))


@pytest.mark.parametrize(("name", "taken"), [("apply_vertex", 1), ("apply_edge", 2)])
def test_gradients_without_rows_are_the_others(name: str, taken: int) -> None:
    sent = [torch.randn(6, 4), torch.randn(3, 2)][:taken]
    weights = [torch.randn(3, 4)]
    towards = [torch.randn_like(each) for each in OPERATORS[name](sent, weights)]
    whole = OPERATORS[gradient_of(name)]([*sent, *towards], weights)
    found = OPERATORS[of_weights(gradient_of(name))]([*sent, *towards], weights)
    assert len(found) == len(whole) - 1
    assert all(torch.equal(a, b) for a, b in zip(found, whole[1:], strict=True))
