"""Draws of Triton's kernels are those of the counter function."""

import numpy as np
import pytest
import torch
from kernel_checks import DEVICE, values
from triton_checks import CLOCK, on_triton

from weft import draw

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@on_triton
def test_draws_are_those_of_the_counter_function() -> None:
    from triton_draws import fill

    ids, lanes = np.array([0, 1, 7, 2**31, 2**40 + 3, 2**62, 5, 6]), np.array([0, 1, 2, 1000])
    for seed in (0, 1, 12345, 2**62):
        key = draw.fold(seed, draw.Stream.DROPOUT, 3, 4, 5)
        out = torch.empty(8, 4, dtype=torch.int64, device=DEVICE)
        fill[(1,)](
            torch.from_numpy(ids).to(DEVICE), torch.from_numpy(lanes).to(DEVICE), out, draw.signed(key), 8, 4
        )
        assert out.tolist() == draw.draw(key, ids[:, None], lanes[None, :]).tolist()


@on_triton
def test_a_key_is_folded_where_the_clock_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.kernels.triton import dropout
    from weft.kernels.triton.draw import folded

    for clock in (CLOCK, torch.tensor([2**62, 0, 7])):
        expected = draw.signed(draw.fold(int(clock[0]), 3, int(clock[1]), int(clock[2]), 4))
        assert folded(clock.to(DEVICE), 3, 4).tolist() == [expected]
    x, ids = values(9, 5), torch.arange(9, device=DEVICE)
    plain = dropout.dropout(x, ids, 0.4, CLOCK.cpu(), 2, 1)
    monkeypatch.setattr(dropout, "key_of", lambda clock, *rest: folded(clock.to(DEVICE), *rest))
    assert torch.equal(dropout.dropout(x, ids, 0.4, CLOCK, 2, 1), plain)
