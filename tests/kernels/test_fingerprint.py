"""A number of all bytes of a tensor."""

import pytest
import torch
from kernel_checks import needs_core

from weft import kernels
from weft.kernels import native, reference


def made(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(-(1 << 40), 1 << 40, (count,), generator=draw).to(dtype)


@needs_core
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 8191, 8192, 8193, 50_001])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8, torch.bfloat16])
def test_the_core_gives_the_number_of_the_reference(count: int, dtype: torch.dtype) -> None:
    values = made(count, dtype)
    assert kernels.fingerprint(values) == reference.fingerprint(values)


def test_it_is_that_of_the_polynomial() -> None:
    values, base, expected = made(5), 0x9E3779B97F4A7C15, 0
    for each in values.tolist():
        expected = (expected * base + each) % (1 << 64)
    assert kernels.fingerprint(values) == reference.fingerprint(values) == expected


def test_every_value_and_its_place_count() -> None:
    values = made(3000)
    whole = kernels.fingerprint(values)
    for place in (0, 1500, 2999):
        other = values.clone()
        other[place] += 1
        assert kernels.fingerprint(other) != whole
    other = values.clone()
    other[[3, 4]] = values[[4, 3]]
    assert kernels.fingerprint(other) != whole
    assert kernels.fingerprint(values.clone()) == whole


def test_values_of_a_view_are_taken_in_their_order() -> None:
    values = made(3000).view(1000, 3)
    assert kernels.fingerprint(values.t()) == kernels.fingerprint(values.t().contiguous())


@needs_core
def test_it_is_the_same_for_any_number_of_threads() -> None:
    values, before = made(2_000_000), torch.get_num_threads()
    found = set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.add(kernels.fingerprint(values))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_without_the_core_the_reference_runs() -> None:
    values = made(100)
    with native.disabled():
        assert kernels.fingerprint(values) == reference.fingerprint(values)
