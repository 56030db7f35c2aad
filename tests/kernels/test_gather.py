"""Rows by index, with a backward that sums in a fixed order."""

import pytest
import torch
from kernel_checks import DEVICE, FLOATS, compare, needs_core, same_bits, values

from weft import kernels
from weft.errors import GraphError
from weft.kernels.gather import gather_backward_op, gather_op

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (7,), (8,), (16,), (32,), (33,), (3, 5), (600,)])
def test_rows_are_copied_and_repeated_rows_sum_their_gradients(
    form: str, index: torch.dtype, shape: tuple[int, ...]
) -> None:
    rows = torch.tensor([3, 0, 3, 3, 9], dtype=index)
    x = values(10, *shape)
    assert torch.equal(kernels.gather(x, rows), x[rows.long()])
    compare(lambda x: kernels.gather(x, rows), [x])


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.bool, torch.uint8])
def test_every_type_is_copied(form: str, dtype: torch.dtype) -> None:
    x = (values(10, 6) * 9).to(dtype)
    rows = torch.tensor([9, 1, 1])
    assert torch.equal(kernels.gather(x, rows), x[rows])


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_row_that_is_taken_very_often_sums_exactly(form: str, dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    kernels.gather(x, torch.zeros(50_000, dtype=torch.int64)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[torch.tensor(50_000.0).to(dtype).item()] * 3, [0, 0, 0]]


def test_no_rows_views_and_threads(form: str, nan_memory: None) -> None:
    x = values(10, 6, grad=True)
    none = kernels.gather(x, torch.arange(0))
    assert none.shape == (0, 6)
    (grad,) = torch.autograd.grad(none.sum(), x)
    assert not grad.any()
    compare(lambda x: kernels.gather(x.T, torch.tensor([3, 0, 3])), [values(6, 10)])
    rows = torch.randint(100, (20_000,), generator=torch.Generator().manual_seed(0), device="cpu").to(DEVICE)

    def run() -> list[torch.Tensor]:
        x = values(100, 20, grad=True)
        out = kernels.gather(x, rows)
        return [out, *torch.autograd.grad(out.square().sum(), x)]

    if form != "reference":
        same_bits(run)


def test_gradients_opcheck_and_compile(form: str) -> None:
    rows = torch.tensor([1, 3, 3], dtype=torch.int32)
    x = values(5, 2, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda x: kernels.gather(x, rows), x)
    assert torch.autograd.gradgradcheck(lambda x: kernels.gather(x, rows).square(), x)
    torch.library.opcheck(gather_op, (x, rows))
    torch.library.opcheck(gather_backward_op, (values(3, 2, grad=True), rows, 5))
    run = lambda x: kernels.gather(x.relu(), rows)  # noqa: E731
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(x), run(x))


@needs_core
@pytest.mark.parametrize("row", [-1, 5, 2**40])
def test_the_core_refuses_rows_outside_the_matrix(row: int) -> None:
    with pytest.raises(GraphError, match="points outside"):
        kernels.gather(torch.ones(5, 2), torch.tensor([0, row]))
