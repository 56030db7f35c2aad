"""Rows in memory, in fewer bits."""

import pytest
import torch

from weft.errors import InputError
from weft.stores import MemoryStore


@pytest.mark.parametrize(
    ("storage", "size", "error"), [("float16", 128, 1e-3), ("bfloat16", 128, 1e-2), ("int8", 68, 0.02)]
)
def test_fewer_bits_are_near(storage: str, size: int, error: float) -> None:
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    x[7] = 0
    store = MemoryStore(x, storage=storage)  # type: ignore[arg-type]
    ids = torch.tensor([7, 49, 0])
    assert store.gather(ids).dtype == torch.float32
    assert (store.gather(ids) - x[ids]).abs().max() <= error
    assert torch.equal(store.gather(ids)[0], torch.zeros(64))
    assert store.row_bytes == size
    store.write(torch.tensor([0]), torch.full((1, 64), 2.0))
    assert (store.gather(torch.tensor([0])) - 2.0).abs().max() < 1e-5


def test_an_int8_row_is_off_by_half_a_step_of_its_own_scale() -> None:
    x = torch.rand(200, 16) * torch.logspace(-6, 6, 200)[:, None]
    error = (MemoryStore(x, storage="int8")[:] - x).abs().amax(1)
    assert bool((error <= x.abs().amax(1) / 127 * 0.501).all())


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="1 values do not fit float16"):
        MemoryStore(torch.tensor([[1e6], [1.0]]), storage="float16")
    with pytest.raises(InputError, match="storage must be one of"):
        MemoryStore(torch.ones(1, 1), storage="int4")  # type: ignore[arg-type]


def test_int8_refuses_rows_that_are_not_finite() -> None:
    for wrong in (float("inf"), -float("inf"), float("nan")):
        with pytest.raises(InputError, match="1 rows do not fit int8"):
            MemoryStore(torch.tensor([[1.0, wrong], [1.0, 2.0]]), storage="int8")
