"""Sums of moduli by Triton, and their gradients, against torch."""

import pytest
import torch
from kernel_checks import values
from triton_checks import on_triton

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_and_their_gradients_are_those_of_torch(parts: int, dtype: torch.dtype) -> None:
    from weft.kernels.triton import distances

    query, key = values(2, 5, 6, dtype=dtype), values(2, 7, 6, dtype=dtype)
    key[0, 2] = query[0, 1]  # no distance, no gradient
    key[1, 3, 0], key[1, 3, 3] = query[1, 0, 0], query[1, 0, 3]
    gradient = values(2, 5, 7, dtype=dtype, seed=1)
    held = [rows.clone().requires_grad_() for rows in (query, key)]
    apart = (held[0][:, :, None] - held[1][:, None]).view(2, 5, 7, parts, -1)
    expected = torch.linalg.vector_norm(apart, dim=3).sum(-1)
    expected.backward(gradient)
    torch.testing.assert_close(distances.sums(query, key, parts), expected.detach())
    for found, rows in zip(distances.slopes(query, key, gradient, parts), held):
        assert rows.grad is not None
        torch.testing.assert_close(found, rows.grad)
