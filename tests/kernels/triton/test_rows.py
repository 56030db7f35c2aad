"""Draws, masks and changed rows of a step on learned rows by Triton, against torch."""

import numpy as np
import pytest
import torch
from kernel_checks import DEVICE, values
from triton_checks import on_triton, rows

from weft.draw import draw, fold, signed
from weft.stores.optim import rowwise_adagrad_rows, summed_rows

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
def test_bits_are_those_of_the_counter() -> None:
    from weft.kernels.triton.rows import bits

    key = fold(3, 7, 1)
    found = bits(rows(signed(key)), rows(4, 0, 9), 5)
    expected = draw(key, np.array([4, 0, 9])[:, None], np.arange(5)).astype(np.int64)
    assert found.cpu().numpy().tolist() == expected.tolist()


@on_triton
def test_true_ends_are_left_out_wherever_they_stand() -> None:
    from weft.kernels.triton.rows import leave_out

    first, count, ends = rows(0, 3, 0, 5), rows(3, 2, 0, 1), rows(2, 7, 5, 2, 9, 4)
    candidates = torch.tensor([[5, 2, 8, 2], [4, 4, 1, 9]], device=DEVICE)
    scores = torch.zeros(2, 2, 5, device=DEVICE)
    leave_out(scores, first, count, ends, candidates)
    assert scores.isinf().int().tolist() == [
        [[0, 1, 1, 0, 1], [0, 0, 1, 0, 1]],
        [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0]],
    ]


@on_triton
def test_rows_change_by_the_sum_of_their_gradients() -> None:
    from weft.kernels.triton.rows import rowwise_adagrad

    ids = torch.cat([rows(*[3] * 20), rows(0, 5, 3, 1, 6, 6, 0, 2, 3, 5, 1, 1, 6, 3, 0)])
    grad, held, total = values(35, 6), values(8, 6, seed=1), values(8).abs()
    expected = held.to("cpu", copy=True), total.to("cpu", copy=True)
    rowwise_adagrad_rows(*expected, *summed_rows(ids.cpu(), grad.cpu()), lr=0.1)
    rowwise_adagrad(held, total, ids, grad, lr=0.1, eps=1e-10)
    for one, other in zip((held, total), expected):
        torch.testing.assert_close(one.cpu(), other)
