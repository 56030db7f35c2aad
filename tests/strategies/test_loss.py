"""A loss is a mean over nodes that may lie on several workers: weft's own, and functions of the user's."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from weft.errors import InputError
from weft.strategies.loss import BCE, CROSS_ENTROPY, LossFunction, own_loss

OUTPUTS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(12) % 3
SEVERAL = (torch.arange(36).view(12, 3) % 5 < 2).long()


def focal_mean(outputs: Tensor, y: Tensor) -> Tensor:
    return focal_rows(outputs, y).mean()


def focal_rows(outputs: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(outputs, y, reduction="none")
    return (1 - torch.exp(-loss)) ** 2 * loss


@pytest.mark.parametrize("function", [focal_mean, focal_rows])
def test_a_mean_and_values_of_rows_are_the_same_loss(function: LossFunction) -> None:
    loss = own_loss("focal", function)
    outputs = OUTPUTS.clone().requires_grad_()
    summed = loss.summed(outputs, Y)
    torch.testing.assert_close(summed, focal_rows(OUTPUTS, Y).sum())
    torch.testing.assert_close(loss.each(outputs, Y), focal_rows(OUTPUTS, Y))
    (gradient,) = torch.autograd.grad(summed, outputs)
    held = OUTPUTS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(focal_rows(held, Y).sum(), held)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("function", [focal_mean, focal_rows])
def test_no_row_gives_no_loss_and_still_a_gradient(function: LossFunction) -> None:
    outputs = OUTPUTS[:0].clone().requires_grad_()
    loss = own_loss("focal", function)
    assert float(loss.summed(outputs, Y[:0])) == 0.0
    loss.summed(outputs, Y[:0]).backward()  # type: ignore[no-untyped-call]
    assert loss.each(outputs, Y[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda o, y: F.cross_entropy(o, y, reduction="sum"), "the mean over two parts of them is"),
        (lambda o, y: F.cross_entropy(o, y, weight=o.new_tensor([1, 5, 9])), "the mean over two parts"),
        (lambda o, y: F.cross_entropy(o, y).item(), "gives float for 12 rows"),
        (lambda o, y: o - 1.0, r"gives shape \[12, 3\] for 12 rows"),
        (lambda o, y: F.cross_entropy(o.detach(), y), "without a gradient"),
    ],
)
def test_what_is_no_loss_is_one_line(function: Callable[..., Tensor], message: str) -> None:
    loss = own_loss("my:loss", function)
    with pytest.raises(InputError, match=message) as caught:
        loss.summed(OUTPUTS.clone().requires_grad_(), Y)
    assert str(caught.value).startswith("train.loss: my:loss ")
    assert "\n" not in str(caught.value)


def test_several_labels_come_in_the_type_of_the_outputs() -> None:
    given = own_loss("bce", lambda o, y: F.binary_cross_entropy_with_logits(o, y))
    torch.testing.assert_close(given.summed(OUTPUTS, SEVERAL), BCE.summed(OUTPUTS, SEVERAL))


def test_wefts_losses_sum_what_they_give_for_each_node() -> None:
    torch.testing.assert_close(CROSS_ENTROPY.summed(OUTPUTS, Y), CROSS_ENTROPY.each(OUTPUTS, Y).sum())
    torch.testing.assert_close(BCE.summed(OUTPUTS, SEVERAL), BCE.each(OUTPUTS, SEVERAL).sum())
