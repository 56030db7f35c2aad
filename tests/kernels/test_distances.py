"""Distances in the core against plain torch, which is held to autograd on a loop written out."""

import pytest
import torch
from kernel_checks import DEVICE
from torch import Tensor

from weft.kernels import distances, native

pytestmark = pytest.mark.gpu
SHAPES = [
    (1, 1, 1, 1),
    (2, 5, 3, 7),
    (1, 33, 65, 32),
    (1, 17, 130, 33),
    (3, 4, 64, 40),
    (1, 0, 4, 3),
    (1, 4, 0, 3),
]


def rows_of(
    shape: tuple[int, int, int, int], parts: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    batches, n, m, numbers = shape
    generator = torch.Generator().manual_seed(n + m)
    sizes = ((batches, n, parts * numbers), (batches, m, parts * numbers), (batches, n, m))
    query, key, gradient = (torch.randn(size, generator=generator, dtype=dtype) for size in sizes)
    if n and m:
        key[0, 0] = query[0, 0]  # moduli of 0
    return query.to(DEVICE), key.to(DEVICE), gradient.to(DEVICE)


def written_out(query: Tensor, key: Tensor, parts: int) -> Tensor:
    apart = (query[:, :, None] - key[:, None]).unflatten(-1, (parts, -1))
    return torch.linalg.vector_norm(apart, dim=-2).sum(-1)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_and_gradients_are_those_of_the_loop_written_out(
    shape: tuple[int, int, int, int], parts: int
) -> None:
    query, key, gradient = rows_of(shape, parts, torch.float64)
    held = [each.clone().requires_grad_() for each in (query, key)]
    expected = written_out(*held, parts)
    slopes = torch.autograd.grad(expected, held, gradient)
    for sums, by in (
        (distances.reference_sums, distances.reference_slopes),
        (distances.sums, distances.slopes),
    ):
        torch.testing.assert_close(sums(query, key, parts), expected.detach())
        for found, slope in zip(by(query, key, gradient, parts), slopes):
            torch.testing.assert_close(found, slope)


@pytest.mark.parametrize("parts", [1, 2])
def test_single_precision_is_near_and_the_same_bits_on_any_threads(parts: int) -> None:
    wide = rows_of((2, 70, 90, 45), parts, torch.float64)
    query, key, gradient = (each.float() for each in wide)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        sums, by = distances.sums(query, key, parts), distances.slopes(query, key, gradient, parts)
        found.append((sums, *by))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
    expected = distances.reference_sums(*wide[:2], parts), *distances.reference_slopes(*wide, parts)
    for one, other in zip(found[0], expected):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


def test_rows_that_do_not_lie_in_order_are_read_right() -> None:
    query, key, gradient = rows_of((2, 6, 5, 4), 2, torch.float32)
    turned = query.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(distances.sums(turned, key, 2), distances.sums(query, key, 2))
    for one, other in zip(
        distances.slopes(turned, key, gradient, 2), distances.slopes(query, key, gradient, 2)
    ):
        assert torch.equal(one, other)


def test_without_the_core_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, gradient = rows_of((1, 6, 5, 4), 2, torch.float64)
    expected = distances.sums(query, key, 2), *distances.slopes(query, key, gradient, 2)
    monkeypatch.setattr(native, "library", lambda: None)
    found = distances.sums(query, key, 2), *distances.slopes(query, key, gradient, 2)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
