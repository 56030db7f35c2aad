"""Rows as codes: within a step, right in the mean, packed without loss, the same bits in both forms."""

import pytest
import torch

from weft.kernels import native
from weft.kernels.quantise import BITS, coded_bytes, dequantise, quantise

CLOCK = torch.tensor([3, 1, 0])
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
needs_core = pytest.mark.skipif(not native.available(), reason="needs the native core")


def rows_of(width: int, dtype: torch.dtype = torch.float32, count: int = 20) -> torch.Tensor:
    """Return rows of values on both sides of zero."""
    return torch.randn(count, width, generator=torch.Generator().manual_seed(width)).to(dtype)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", [1, 3, 16, 37, 128])
def test_a_value_is_off_by_less_than_a_step_of_its_row(width: int, bits: int) -> None:
    x = rows_of(width)
    coded = quantise(x, torch.arange(20), bits, clock=CLOCK)
    assert coded.dtype == torch.uint8
    assert coded.shape == (20, coded_bytes(width, bits))
    step = (x.amax(1) - x.amin(1)) / (2**bits - 1)
    assert bool(((dequantise(coded, width, bits, x.dtype) - x).abs() <= step[:, None] * 1.001 + 1e-6).all())


@needs_core
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", TYPES)
def test_both_forms_give_the_same_bits(dtype: torch.dtype, bits: int) -> None:
    for width in (1, 2, 5, 16, 37, 130):
        x, ids = rows_of(width, dtype), torch.arange(20) * 7
        rows, places = torch.randint(0, 20, (20,)), torch.randperm(20)
        coded = quantise(x, ids, bits, clock=CLOCK, layer=3, rows=rows)
        back = dequantise(coded, width, bits, dtype, places=places)
        with native.disabled():
            assert torch.equal(quantise(x, ids, bits, clock=CLOCK, layer=3, rows=rows), coded)
            assert torch.equal(dequantise(coded, width, bits, dtype, places=places), back)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_mean_over_draws_is_the_value(bits: int) -> None:
    x, turns = rows_of(24, count=4), 800
    total = torch.zeros(4, 24, dtype=torch.float64)
    for epoch in range(turns):
        coded = quantise(x, torch.arange(4), bits, clock=torch.tensor([3, epoch, 0]))
        total += dequantise(coded, 24, bits, torch.float64)
    step = (x.amax(1) - x.amin(1)) / (2**bits - 1)
    # the deviation of one rounding is at most half a step
    assert bool(((total / turns - x).abs() <= 5 * 0.5 * step[:, None] / turns**0.5 + 1e-6).all())


def test_the_codes_of_a_row_depend_on_its_node_and_not_on_its_place() -> None:
    x, ids = rows_of(16), torch.arange(20)
    coded = quantise(x, ids, 4, clock=CLOCK)
    turned = torch.arange(19, -1, -1)
    assert torch.equal(quantise(x, ids[turned], 4, clock=CLOCK, rows=turned), coded[turned])
    assert not torch.equal(quantise(x, ids, 4, clock=CLOCK, layer=1), coded)
    assert not torch.equal(quantise(x, ids + 1, 4, clock=CLOCK), coded)


def test_equal_values_and_zeros_come_back_as_they_were() -> None:
    x = torch.stack([torch.zeros(9), torch.full((9,), -2.5), torch.tensor([0.0, 1.0] * 4 + [0.0])])
    for bits in BITS:
        coded = quantise(x, torch.arange(3), bits, clock=CLOCK)
        assert torch.equal(dequantise(coded, 9, bits, x.dtype), x)


def test_what_is_not_finite_is_not_hidden() -> None:
    x = torch.ones(2, 5)
    x[0, 3], x[1, 0] = torch.nan, torch.inf
    for bits in BITS:
        back = dequantise(quantise(x, torch.arange(2), bits, clock=CLOCK), 5, bits, x.dtype)
        assert not bool(back.isfinite().any(1).all())


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_nothing_is_coded_as_nothing(shape: tuple[int, int]) -> None:
    coded = quantise(torch.zeros(shape), torch.arange(shape[0]), 8, clock=CLOCK)
    assert dequantise(coded, shape[1], 8, torch.float32).shape == shape


@pytest.mark.parametrize(("bits", "share"), [(16, 0.52), (8, 0.27), (4, 0.15), (2, 0.08)])
def test_codes_cost_little_more_than_their_bits_at_width_128(bits: int, share: float) -> None:
    assert coded_bytes(128, bits) <= share * 128 * torch.float32.itemsize


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_rows_of_another_width_are_refused(bits: int) -> None:
    coded = quantise(torch.rand(3, 8), torch.arange(3), bits, clock=torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="dequantise: 3 rows of 17 values"):
        dequantise(coded, 17, bits, torch.float32)
