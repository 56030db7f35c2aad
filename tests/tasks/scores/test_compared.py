"""Comparisons of queries and keys: pair by pair, all with all, in pieces and in chunks."""

import pytest
import torch
from torch import Tensor

from weft.tasks.scores.compared import ComplexNearness, Nearness, Product, moduli

GENERATOR = torch.Generator().manual_seed(0)
ONE = torch.randn(2, 3, 5, 4, generator=GENERATOR, dtype=torch.float64)
MANY = torch.randn(2, 3, 7, 4, generator=GENERATOR, dtype=torch.float64)
CASES = {
    "product": Product(),
    "l1": Nearness(1, 0.5),
    "l2": Nearness(2),
    "complex": ComplexNearness(0.5),
}
NEAR = [name for name in CASES if name != "product"]


def slopes(scores: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    by_place = torch.arange(1.0, 1 + scores.numel(), dtype=torch.float64).view_as(scores)
    return torch.autograd.grad((scores * by_place).sum(), rows)


@pytest.mark.parametrize("at_once", [None, 1, 1 << 22])
@pytest.mark.parametrize("name", CASES)
def test_all_with_all_is_pair_by_pair_in_values_and_gradients(
    name: str, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once is not None:
        monkeypatch.setattr("weft.kernels.distances._AT_ONCE", at_once)
        monkeypatch.setattr("weft.kernels.native.library", lambda: None)
    one, many = ONE.clone().requires_grad_(), MANY.clone().requires_grad_()
    crossed = CASES[name].crossed(one, many)
    paired = CASES[name].paired(one[..., :, None, :], many[..., None, :, :])
    assert crossed.shape == (2, 3, 5, 7)
    torch.testing.assert_close(crossed, paired)
    for found, expected in zip(slopes(crossed, one, many), slopes(paired, one, many)):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NEAR)
def test_a_key_that_is_its_query_has_no_gradient(name: str) -> None:
    one = ONE[0, 0].clone().requires_grad_()
    compare = CASES[name]
    for scores in (compare.paired(one, ONE[0, 0]), compare.crossed(one, ONE[0, 0]).diagonal()):
        (gradient,) = torch.autograd.grad(scores.sum(), one)
        assert not gradient.nan_to_num(nan=1.0, posinf=1.0).any()


def test_nearness_is_written_out() -> None:
    query, key = torch.tensor([3.0, 0.0, 4.0, 0.0]), torch.zeros(4)
    assert float(Nearness(1).paired(query, key)) == -7.0
    assert float(Nearness(2, 6.0).paired(query, key)) == 1.0
    assert float(ComplexNearness().paired(query, key)) == -5.0  # |3 + 4i| and |0|
    assert moduli(query).tolist() == [5.0, 0.0]
