"""Rows by number times one matrix per segment by Triton, against the reference."""

import pytest
import torch
from kernel_checks import DEVICE, compare, values
from triton_checks import HALF, on_triton

from weft import kernels
from weft.kernels import gpu, segment

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")

OFFSETS = torch.tensor([0, 150, 150, 153, 250], device="cpu")


@pytest.fixture(autouse=True)
def long_segments_and_few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.kernels.triton import segment_rows

    monkeypatch.setattr(segment, "LONG", 0)
    monkeypatch.setattr(segment_rows, "PROGRAMS", 2)


def rows() -> torch.Tensor:
    """Return a row for each place, none twice in a segment, some in several."""
    draw = torch.Generator().manual_seed(0)
    sizes = OFFSETS.diff().tolist()
    return torch.cat([torch.randperm(160, generator=draw, device="cpu")[:size] for size in sizes]).to(DEVICE)


@on_triton
# the interpreter's product of bfloat16 reads the bits as whole numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16 if gpu.INTERPRETED else HALF])
@pytest.mark.parametrize(("depth", "width"), [(7, 9), (64, 32), (130, 4)])
def test_rows_times_a_matrix_a_segment(dtype: torch.dtype, depth: int, width: int) -> None:
    taken = rows()
    run = lambda x, w: kernels.segment_matmul(x, OFFSETS, w, taken)  # noqa: E731
    compare(run, [values(160, depth, dtype=dtype), values(4, depth, width, dtype=dtype)], terms=500)


@on_triton
def test_the_bits_are_those_of_every_run() -> None:
    taken, x, weights = rows(), values(160, 8, grad=True), values(4, 8, 8, grad=True)
    made = [kernels.segment_matmul(x, OFFSETS, weights, taken) for _ in range(2)]
    found = [torch.autograd.grad(each.square().sum(), (x, weights)) for each in made]
    assert torch.equal(*made)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
