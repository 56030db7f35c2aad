"""Means weighted by a softmax: masses, rows without one, and merges that do not wear them out."""

import math

import torch

from weft.graph.reductions import ByRow, Contribution, Running, reduction


def test_a_contribution_weighs_as_much_as_its_mass() -> None:
    values = torch.tensor([[[1.0]], [[4.0]], [[9.0]]])
    masses = torch.tensor([[math.log(2.0)], [math.log(1.0)], [-torch.inf]])
    whole = reduction("softmax").reduced(ByRow.of(torch.zeros(3).long(), 2), Contribution(values, masses))
    assert whole.beside is not None
    torch.testing.assert_close(whole.value, torch.tensor([[[2.0]], [[0.0]]]))
    torch.testing.assert_close(whole.beside.exp(), torch.tensor([[3.0], [0.0]], dtype=torch.float64))


def test_a_row_without_a_mass_stays_zero_when_merged() -> None:
    running = Running(reduction("softmax"), 1)
    for _ in range(2):
        running.add(Contribution(torch.zeros(1, 1, 2), torch.full((1, 1), -torch.inf)), torch.tensor([0]))
    assert running.whole.value.tolist() == [[[0, 0]]]
    assert running.whole.beside is not None
    assert running.whole.beside.tolist() == [[-torch.inf]]


def test_ten_thousand_merges_round_no_more_than_one() -> None:
    count, large = 10_000, 1e4  # where a logarithm of 32 bits has steps of a thousandth
    running = Running(reduction("softmax"), 1)
    for number in range(count):
        value = torch.full((1, 1, 1), float(number % 2))
        running.add(Contribution(value, torch.full((1, 1), large)), torch.tensor([0]))
    assert running.whole.beside is not None
    assert abs(float(running.whole.beside) - large - math.log(count)) < 1e-6
    assert abs(float(running.whole.value) - 0.5) < 1e-4


def test_gradients_are_those_of_the_mean_and_of_the_mass() -> None:
    made = torch.Generator().manual_seed(0)
    rows = torch.tensor([0, 1, 0, 1, 1])
    value, mass, to_mean, to_mass = (
        torch.randn(*shape, generator=made, dtype=torch.float64)
        for shape in ((5, 2, 3), (5, 2), (2, 2, 3), (2, 2))
    )
    value.requires_grad_()
    mass.requires_grad_()
    total = torch.stack([mass[rows == row].logsumexp(0) for row in range(2)])
    share = torch.exp(mass - total[rows])[..., None]
    mean = torch.stack([(share * value)[rows == row].sum(0) for row in range(2)])
    for towards in (to_mass, None):  # whether somebody looked at the mass
        grads = [to_mean, torch.zeros_like(to_mass) if towards is None else towards]
        expected = torch.autograd.grad([mean, total], [value, mass], grads, retain_graph=True)
        whole, given = (
            Contribution(mean.detach(), total.detach()),
            Contribution(value.detach(), mass.detach()),
        )
        found = reduction("softmax").gradients(whole, given, rows, Contribution(to_mean, towards))
        torch.testing.assert_close(tuple(found), expected)
