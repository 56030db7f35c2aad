"""One matrix per segment of rows."""

import pytest
import torch
from kernel_checks import DEVICE, FLOATS, assert_near, values

from weft import kernels
from weft.errors import InputError
from weft.kernels import segment
from weft.kernels.segment import segment_matmul_op, segment_outer_op

pytestmark = pytest.mark.gpu

OFFSETS = torch.tensor([0, 3, 3, 10])


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_segment_is_multiplied_by_its_own_matrix(dtype: torch.dtype) -> None:
    x, weights = values(10, 4, dtype=dtype), values(3, 4, 5, dtype=dtype)
    out = kernels.segment_matmul(x, OFFSETS, weights)
    assert_near(out[:3], x[:3].double() @ weights[0].double(), dtype)
    assert_near(out[3:], x[3:].double() @ weights[2].double(), dtype)


def test_gradients_of_first_and_second_order() -> None:
    x = values(10, 4, dtype=torch.float64, grad=True)
    weights = values(3, 4, 5, dtype=torch.float64, grad=True)
    run = lambda x, w: kernels.segment_matmul(x, OFFSETS, w)  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, weights))
    assert torch.autograd.gradgradcheck(run, (x, weights))


ROWS = torch.tensor([5, 0, 2, 1, 4, 3, 0, 5, 2, 6], device=DEVICE)  # none twice in a segment


@pytest.fixture
def every_segment_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "LONG", 0)


@pytest.mark.usefixtures("every_segment_is_long")
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_gathered_a_segment_at_a_time_are_those_gathered_at_once(dtype: torch.dtype) -> None:
    found = []
    for at_once in (False, True):
        x, weights = values(7, 4, dtype=dtype, grad=True), values(3, 4, 5, dtype=dtype, grad=True)
        given = (kernels.gather(x, ROWS), OFFSETS, weights) if at_once else (x, OFFSETS, weights, ROWS)
        out = kernels.segment_matmul(*given)
        assert ("of" in type(out.grad_fn).__name__) != at_once
        found.append([out, *torch.autograd.grad(out, (x, weights), values(10, 5, dtype=dtype))])
    for ours, theirs in zip(*found, strict=True):
        assert_near(ours, theirs.double(), dtype)


@pytest.mark.usefixtures("every_segment_is_long")
def test_rows_of_segments_have_gradients_of_first_and_second_order() -> None:
    x = values(7, 4, dtype=torch.float64, grad=True)
    weights = values(3, 4, 5, dtype=torch.float64, grad=True)
    run = lambda x, w: kernels.segment_matmul(x, OFFSETS, w, ROWS)  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, weights))
    assert torch.autograd.gradgradcheck(run, (x, weights))
    torch.library.opcheck(segment.segment_matmul_of_op, (x, ROWS, OFFSETS, weights))


@pytest.mark.usefixtures("every_segment_is_long")
def test_rows_are_never_all_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "gather", None)
    x, weights = values(7, 4, grad=True), values(3, 4, 5, grad=True)
    kernels.segment_matmul(x, OFFSETS, weights, ROWS).sum().backward()
    assert x.grad is not None


def test_an_unused_matrix_gets_a_gradient_of_zero() -> None:
    x, weights = values(10, 4), values(3, 4, 5, grad=True)
    kernels.segment_matmul(x, OFFSETS, weights).sum().backward()
    assert weights.grad is not None
    assert not weights.grad[1].any()
    assert weights.grad[0].any()


def test_no_rows() -> None:
    out = kernels.segment_matmul(torch.zeros(0, 4), torch.zeros(4, dtype=torch.int64), values(3, 4, 5))
    assert out.shape == (0, 5)


def test_opcheck_and_compile() -> None:
    x, weights = values(10, 4, grad=True), values(3, 4, 5, grad=True)
    torch.library.opcheck(segment_matmul_op, (x, OFFSETS, weights))
    torch.library.opcheck(segment_outer_op, (x, values(10, 5, grad=True), OFFSETS))
    run = lambda x, w: kernels.segment_matmul(x.relu(), OFFSETS, w)  # noqa: E731
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(x, weights), run(x, weights))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(InputError, match=r"got \[10, 4\], \[3\], \[3, 4, 5\]"):
        kernels.segment_matmul(values(10, 4), torch.tensor([0, 3, 10]), values(3, 4, 5))


@pytest.mark.parametrize("offsets", [[0, 3, 3, 9], [0, 3, 3, 11], [1, 3, 3, 10], [0, 5, 3, 10]])
def test_offsets_that_leave_rows_out_are_refused(offsets: list[int]) -> None:
    with pytest.raises(InputError, match=r"offsets must rise from 0 to the 10 rows of x, got \d+, \d"):
        kernels.segment_matmul(values(10, 4), torch.tensor(offsets), values(3, 4, 5))
