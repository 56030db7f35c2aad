"""Losses of links equal plain loops over pairs and negatives, in value and gradient."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from weft.errors import InputError
from weft.tasks.pair_loss import PAIR_LOSSES, infonce, pair_loss

NONE = float("-inf")
OUTPUTS = torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
LEFT_OUT = torch.rand(9, 5, generator=torch.Generator().manual_seed(1)) < 0.4
LEFT_OUT[:, 0] = False
LEFT_OUT[4, 1:] = True  # a pair without any negative
LEFT_OUT[5, 1:] = False


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean() if values else torch.zeros((), dtype=torch.float64)


def plain_cross_entropy(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    return (-torch.log(sigmoid(true)) + mean([-torch.log(1 - sigmoid(n)) for n in negatives])) / 2


def plain_bpr(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    return mean([-torch.log(sigmoid(true - n)) for n in negatives])


def plain_margin(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    return mean([torch.clamp(2.0 - true + n, min=0.0) for n in negatives])


def plain_infonce(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    weights = [torch.exp(score / 0.5) for score in (true, *negatives)]
    return -torch.log(weights[0] / torch.stack(weights).sum())


def plain_negative_sampling(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    return -torch.log(sigmoid(true)) + len(negatives) * mean([-torch.log(1 - sigmoid(n)) for n in negatives])


def plain_self_adversarial(true: Tensor, negatives: Sequence[Tensor]) -> Tensor:
    weights = [math.exp(0.5 * float(n.detach())) for n in negatives]
    hard = [w / sum(weights) * -torch.log(1 - sigmoid(n)) for w, n in zip(weights, negatives)]
    return (-torch.log(sigmoid(true)) + len(hard) * mean(hard)) / 2


Plain = Callable[[Tensor, Sequence[Tensor]], Tensor]
CASES: dict[str, tuple[dict[str, float], Plain]] = {
    "cross_entropy": ({}, plain_cross_entropy),
    "bpr": ({}, plain_bpr),
    "margin": ({"margin": 2.0}, plain_margin),
    "infonce": ({"temperature": 0.5}, plain_infonce),
    "softmax": ({"temperature": 0.5}, plain_infonce),
    "logistic": ({}, plain_cross_entropy),
    "self_adversarial": ({"temperature": 0.5}, plain_self_adversarial),
    "negative_sampling": ({}, plain_negative_sampling),
}


def looped(plain: Plain, outputs: Tensor, left_out: Tensor) -> Tensor:
    """Return the loss pair by pair, from what is held alone."""
    rows = [
        plain(row[0], [score for score, out in zip(row[1:], gone[1:]) if not out])
        for row, gone in zip(outputs, left_out)
    ]
    return torch.stack(rows)


def test_every_loss_is_held_to_a_loop() -> None:
    assert sorted(CASES) == sorted(PAIR_LOSSES)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("left_out", [torch.zeros_like(LEFT_OUT), LEFT_OUT], ids=["all", "some left out"])
def test_values_and_gradients_are_those_of_a_loop(name: str, left_out: Tensor) -> None:
    options, plain = CASES[name]
    held, reference = OUTPUTS.clone().requires_grad_(), OUTPUTS.clone().requires_grad_()
    each = PAIR_LOSSES[name](**options)(held.masked_fill(left_out, NONE))
    expected = looped(plain, reference, left_out)
    assert each.shape == (9,)
    torch.testing.assert_close(each, expected)
    by_row = torch.arange(1.0, 10.0, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((each * by_row).sum(), held)
    (slope,) = torch.autograd.grad((expected * by_row).sum(), reference)
    torch.testing.assert_close(gradient, slope)


@pytest.mark.parametrize("name", sorted(CASES))
def test_scores_of_minus_infinity_themselves_get_no_gradient(name: str) -> None:
    outputs = OUTPUTS.masked_fill(LEFT_OUT, NONE).requires_grad_()
    each = PAIR_LOSSES[name](**CASES[name][0])(outputs)
    (gradient,) = torch.autograd.grad(each.sum(), outputs)
    assert bool(each.isfinite().all())
    assert bool(gradient.isfinite().all())
    assert not gradient[LEFT_OUT].any()


@pytest.mark.parametrize("name", sorted(CASES))
def test_large_scores_stay_finite(name: str) -> None:
    outputs = torch.tensor([[-500.0, 500.0], [500.0, -500.0]], requires_grad=True)
    each = PAIR_LOSSES[name]()(outputs)
    (gradient,) = torch.autograd.grad(each.sum(), outputs)
    assert bool(each.isfinite().all())
    assert bool(gradient.isfinite().all())
    # Where the chance of a true pair and of its negatives weigh the same, each is 500 and their mean too.
    assert each[0].item() >= 500.0
    assert each[1].item() == pytest.approx(0.0)


def test_true_pairs_and_negatives_weigh_the_same_however_many_there_are() -> None:
    loss = PAIR_LOSSES["cross_entropy"]()
    assert float(loss(torch.zeros(1, 2))) == pytest.approx(math.log(2))
    assert float(loss(torch.zeros(1, 100))) == pytest.approx(math.log(2))


def test_a_correction_undoes_how_often_a_node_is_drawn() -> None:
    # Node 1 is drawn three times as often as node 2: corrected, that is a softmax over each of them once.
    often = torch.tensor([[0.3, 1.0, 1.0, 1.0, -0.5]], dtype=torch.float64)
    chance = torch.tensor([[1.0, 3.0, 3.0, 3.0, 1.0]], dtype=torch.float64)
    once = torch.tensor([[0.3, 1.0, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(infonce()(often, chance.log()), infonce()(once))
    shifted = infonce(0.7)(often, (chance / 42).log())
    torch.testing.assert_close(shifted, infonce(0.7)(often, chance.log()))
    torch.testing.assert_close(shifted, infonce(0.7)(once))


def test_a_node_that_is_left_out_needs_no_chance() -> None:
    outputs = torch.tensor([[1.0, NONE, 0.5]], requires_grad=True)
    loss = infonce()(outputs, torch.tensor([[0.0, NONE, 0.0]]))
    torch.testing.assert_close(loss, infonce()(torch.tensor([[1.0, 0.5]])))
    (gradient,) = torch.autograd.grad(loss.sum(), outputs)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", sorted(CASES))
def test_sums_of_parts_over_all_pairs_are_the_mean_of_all(name: str) -> None:
    loss = pair_loss(name, **CASES[name][0])
    y, outputs = torch.zeros(9), OUTPUTS.masked_fill(LEFT_OUT, NONE)
    parts = [slice(0, 0), slice(0, 4), slice(4, 9)]
    summed = torch.stack([loss.summed(outputs[rows], y[rows]) for rows in parts]).sum()
    torch.testing.assert_close(summed / len(y), loss.each(outputs, y).mean())


def test_what_is_added_to_the_loss_of_a_pair_has_its_gradient() -> None:
    penalty = torch.arange(9.0, dtype=torch.float64, requires_grad=True)
    loss = pair_loss("self_adversarial")
    torch.testing.assert_close(loss.each(OUTPUTS, penalty), loss.each(OUTPUTS, torch.zeros(9)) + penalty)
    (gradient,) = torch.autograd.grad(loss.summed(OUTPUTS, penalty), penalty)
    assert gradient.tolist() == [1.0] * 9


def test_without_a_temperature_all_negatives_weigh_the_same() -> None:
    alike = pair_loss("self_adversarial", temperature=0.0).each(OUTPUTS, torch.zeros(9))
    torch.testing.assert_close(alike, pair_loss("cross_entropy").each(OUTPUTS, torch.zeros(9)))


def test_a_loss_by_name_takes_log_q_for_its_y() -> None:
    log_q = torch.randn(9, 5, dtype=torch.float64)
    loss = pair_loss("infonce", temperature=0.5)
    torch.testing.assert_close(loss.summed(OUTPUTS, log_q), infonce(0.5)(OUTPUTS, log_q).sum())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pair_loss("bpp"), "no loss of links 'bpp'; did you mean 'bpr'"),
        (lambda: pair_loss("bpr", margin=1.0), "task.loss.*margin.*no options here"),
        (lambda: pair_loss("margin", margin=0.0), "task.loss.margin.*> 0"),
        (lambda: pair_loss("infonce", temperature="hot"), "task.loss.temperature: expected a number"),
        (lambda: pair_loss("bpr").each(OUTPUTS, OUTPUTS), "'bpr' has no use for log_q; 'infonce' has"),
        (lambda: infonce()(OUTPUTS, OUTPUTS[:, 1:]), r"log_q: expected one number per score, \[9, 5\]"),
    ],
)
def test_what_cannot_be_is_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
