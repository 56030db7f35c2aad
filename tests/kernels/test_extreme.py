"""The largest and smallest value over incoming edges, ties counted."""

import pytest
import torch
from kernel_checks import FLOATS, WIDTHS, compare, csr, hub_csr, same_bits, values

from weft import kernels
from weft.errors import InputError
from weft.kernels.extreme import extreme_backward_op, extreme_op

pytestmark = pytest.mark.gpu

INDPTR, INDICES = torch.tensor([0, 3, 4, 4]), torch.tensor([0, 1, 2, 2], dtype=torch.int32)
X = torch.tensor([[1.0, 5.0], [3.0, 5.0], [3.0, -1.0]])


def test_value_and_number_of_edges_that_attain_it(form: str) -> None:
    value, count = kernels.extreme(INDPTR, INDICES, X, "max")
    assert value.tolist() == [[3, 5], [3, -1], [0, 0]]
    assert count.tolist() == [[2, 2], [1, 1], [0, 0]]
    value, count = kernels.extreme(INDPTR, INDICES, X, "min")
    assert value.tolist() == [[1, -1], [3, -1], [0, 0]]
    assert count.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert count.dtype == torch.int32


def test_tied_edges_share_the_gradient(form: str) -> None:
    x = X.clone().requires_grad_()
    kernels.spmm(INDPTR, INDICES, x, reduce="max").backward(
        torch.tensor([[6.0, 8.0], [1.0, 1.0], [9.0, 9.0]])
    )
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 4], [3, 4], [4, 1]]


def test_an_edge_that_occurs_twice_gets_two_shares(form: str) -> None:
    x = torch.tensor([[1.0], [1.0]], requires_grad=True)
    indptr, indices = torch.tensor([0, 3]), torch.tensor([0, 0, 1], dtype=torch.int32)
    kernels.spmm(indptr, indices, x, reduce="max").sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[2 / 3], [1 / 3]]))


def test_nan_wins_and_is_counted(form: str) -> None:
    x = X.clone()
    x[1, 0] = x[2, 0] = float("nan")
    for reduce in ("max", "min"):
        value, count = kernels.extreme(INDPTR, INDICES, x, reduce)
        assert value[:2, 0].isnan().all()
        assert count[:, 0].tolist() == [2, 1, 0]
        assert not value[:, 1].isnan().any()


def test_infinities_are_values(form: str) -> None:
    x = torch.full((3, 2), float("-inf"))
    value, count = kernels.extreme(INDPTR, INDICES, x, "max")
    assert value[0].tolist() == [float("-inf")] * 2
    assert count[0].tolist() == [3, 3]


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_width_and_type_agrees_with_the_definition(
    form: str, reduce: str, width: int, dtype: torch.dtype
) -> None:
    indptr, indices = csr(30, 25, 200, seed=width)
    x = (values(30, width, dtype=dtype) * 2).round()  # many ties
    compare(lambda x: kernels.spmm(indptr, indices, x, reduce=reduce), [x])


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_a_hub_merges_values_and_counts(form: str, reduce: str) -> None:
    indptr, indices = hub_csr(50, 9000)
    x = (values(50, 20) * 2).round()
    compare(lambda x: kernels.spmm(indptr, indices, x, reduce=reduce), [x], terms=9000)
    value, count = kernels.extreme(indptr, indices, x, reduce)
    hub = x[indices[2:].long()]
    expected = hub.amax(0) if reduce == "max" else hub.amin(0)
    assert torch.equal(value[1], expected)
    assert torch.equal(count[1], (hub == expected).sum(0).int())


def test_a_hub_keeps_nan(form: str) -> None:
    indptr, indices = hub_csr(50, 9000)
    x = values(50, 3)
    x[indices[8000], 1] = float("nan")
    value, _ = kernels.extreme(indptr, indices, x, "min")
    assert value[1].isnan().tolist() == [False, True, False]


def test_the_bits_do_not_depend_on_the_number_of_threads(form: str) -> None:
    indptr, indices = csr(300, 2000, 40_000)

    def run() -> list[torch.Tensor]:
        x = (values(300, 40) * 2).round().requires_grad_()
        out = kernels.spmm(indptr, indices, x, reduce="max")
        return [out, *torch.autograd.grad(out.square().sum(), x)]

    if form == "reference":
        pytest.skip("the reference uses torch's own reductions")
    same_bits(run)


def test_all_of_the_result_is_written(form: str, nan_memory: None) -> None:
    indptr, indices = csr(30, 25, 40)
    for width in WIDTHS:
        x = torch.ones(30, width, requires_grad=True)
        value, count = kernels.extreme(indptr, indices, x, "max")
        (grad,) = torch.autograd.grad(value.sum(), x)
        assert not value.isnan().any()
        assert not grad.isnan().any()
        assert torch.equal(count[:, 0], indptr.diff().int())


def test_gradcheck_without_ties(form: str) -> None:
    indptr, indices = csr(6, 5, 14)
    x = values(6, 3, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda x: kernels.spmm(indptr, indices, x, reduce="max"), x)


def test_opcheck_and_compile(form: str) -> None:
    indptr, indices = csr(6, 5, 14)
    x = values(6, 3, grad=True)
    held = kernels.transpose_csr(indptr, indices, 6)
    torch.library.opcheck(extreme_op, (indptr, indices, x, True, *held[:2]))
    torch.library.opcheck(extreme_op, (indptr, indices, x, False, None, None))
    value, count = kernels.extreme(indptr, indices, x.detach())
    torch.library.opcheck(extreme_backward_op, (*held[:2], x.detach(), value, count, torch.ones_like(value)))
    run = lambda x: kernels.spmm(indptr, indices, x.relu(), reduce="max")  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), run(x))


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(InputError, match="max or min, got 'sum'"):
        kernels.extreme(INDPTR, INDICES, X, "sum")
