"""Softmax slopes and complex products by Triton, against torch."""

import pytest
import torch
from kernel_checks import DEVICE, values
from triton_checks import on_triton

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("columns", [5, 4099])
@pytest.mark.parametrize("filled", [True, False])
def test_the_slope_of_a_softmax_is_that_of_autograd(columns: int, filled: bool) -> None:
    from weft.kernels.triton.contrast import softmax_slope

    scores = 3.0 * values(3, columns)
    scores[0, 2], scores[1, 1:] = -torch.inf, -torch.inf
    scores[2] += 100.0
    live = torch.tensor([1.0, 1.0, 0.0], device=DEVICE) if filled else None
    held = scores.clone().requires_grad_()
    expected = torch.logsumexp(held / 0.5, 1) - held[:, 0] / 0.5
    expected = expected if live is None else expected * live
    expected.sum().backward()
    losses = softmax_slope(scores, live, 0.5)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores, held.grad, rtol=1e-4, atol=1e-5)


@on_triton
@pytest.mark.parametrize("conjugate", [True, False])
def test_complex_products_are_those_of_torch(conjugate: bool) -> None:
    from weft.kernels.triton.contrast import complex_product

    x, w = (values(4, 6, seed=seed) for seed in (1, 2))
    first, second = (torch.complex(each[:, :3], each[:, 3:]) for each in (x, w))
    product = first * (second.conj() if conjugate else second)
    expected = torch.cat([product.real, product.imag], 1)
    torch.testing.assert_close(complex_product(x, w, conjugate), expected)
