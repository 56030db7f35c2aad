"""A loss is a mean over nodes that may lie on several workers: weft's own, and functions of the user's."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from weft.errors import InputError
from weft.tasks.loss import (
    BCE,
    CROSS_ENTROPY,
    MAE,
    MSE,
    REGRESSION_LOSSES,
    Loss,
    LossFunction,
    cross_entropy,
    huber,
    own_loss,
)

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


WEIGHTS = [1.0, 5.0, 0.5]
NUMBERS = torch.randn(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3


def mean_and_gradient(loss: Loss, outputs: Tensor, y: Tensor, parts: list[slice]) -> tuple[Tensor, Tensor]:
    """Return loss and gradient of all from the sums of parts, as workers have them."""
    held = outputs.clone().requires_grad_()
    summed = torch.stack([loss.summed(held[rows], y[rows]) for rows in parts]).sum()
    known = ~y.isnan() if y.is_floating_point() else y >= 0
    mean = summed / int((known.any(1) if y.dim() == 2 else known).sum())
    (gradient,) = torch.autograd.grad(mean, held)
    return mean.detach(), gradient


PARTS = [slice(0, 5), slice(5, 5), slice(5, 6), slice(6, 12)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_parts_of_weighted_and_smoothed_targets_add_up_to_torchs_sum(
    weights: list[float] | None, smoothing: float
) -> None:
    loss = cross_entropy(weights, smoothing)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    held = OUTPUTS.clone().requires_grad_()
    expected = F.cross_entropy(held, Y, weight, label_smoothing=smoothing, reduction="sum") / len(Y)
    (slope,) = torch.autograd.grad(expected, held)
    mean, gradient = mean_and_gradient(loss, OUTPUTS, Y, PARTS)
    torch.testing.assert_close(mean, expected.detach())
    torch.testing.assert_close(gradient, slope)
    torch.testing.assert_close(loss.each(OUTPUTS, Y).sum(), loss.summed(OUTPUTS, Y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cross_entropy([1.0, -2.0]), "task.weights: expected one number per class"),
        (lambda: cross_entropy([1.0, float("nan")]), "task.weights: expected one number per class"),
        (lambda: cross_entropy([0.0, 0.0]), "not all 0"),
        (lambda: cross_entropy([1.0, 2.0]).summed(OUTPUTS, Y), "2 are given, the model has 3 outputs"),
        (lambda: cross_entropy(smoothing=1.5), "label smoothing: expected a share"),
        (lambda: huber(0.0), "huber: expected a delta above 0"),
        (lambda: MSE.summed(OUTPUTS[:, :1], NUMBERS[:5, 0]), r"outputs \[12, 1\] for y \[5\]"),
    ],
)
def test_settings_that_cannot_be_are_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


REFERENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "mae": F.l1_loss,
    "huber": F.huber_loss,
}


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_parts_of_numbers_add_up_to_torchs_mean(name: str) -> None:
    held = OUTPUTS.clone().requires_grad_()
    expected = REFERENCES[name](held, NUMBERS)
    (slope,) = torch.autograd.grad(expected, held)
    mean, gradient = mean_and_gradient(REGRESSION_LOSSES[name], OUTPUTS, NUMBERS, PARTS)
    torch.testing.assert_close(mean, expected.detach())
    torch.testing.assert_close(gradient, slope)
    one, _ = mean_and_gradient(REGRESSION_LOSSES[name], OUTPUTS[:, :1], NUMBERS[:, 0], PARTS)
    torch.testing.assert_close(one, REFERENCES[name](OUTPUTS[:, :1], NUMBERS[:, :1]))


def test_huber_turns_at_delta() -> None:
    outputs = torch.tensor([[1.0], [5.0]])
    assert huber(2.0).each(outputs, torch.zeros(2)).tolist() == [0.5, 2.0 * (5.0 - 1.0)]


@pytest.mark.parametrize("loss", [MSE, MAE, huber()], ids=lambda loss: loss.name)
def test_a_target_that_is_not_a_number_has_no_loss_and_no_gradient(loss: Loss) -> None:
    y = NUMBERS.clone()
    y[2] = float("nan")
    y[4, 1] = float("nan")
    outputs = OUTPUTS.clone()
    outputs[2] = float("inf")
    mean, gradient = mean_and_gradient(loss, outputs, y, PARTS)
    whole = [row for row in range(12) if row not in (2, 4)]
    rows = loss.each(OUTPUTS[whole], NUMBERS[whole]).sum()
    partial = loss.each(OUTPUTS[4:5, [0, 2]], NUMBERS[4:5, [0, 2]]).sum()
    torch.testing.assert_close(mean, (rows + partial) / 11)
    assert bool(gradient.isfinite().all())
    assert not gradient[2].any()
    assert not gradient[4, 1]
